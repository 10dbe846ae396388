"""Cases pages, open, changes: `python -m bench.console CASE … [--scale F] [--seconds S]`; one table each, with its bars.

Each case starts a Penstock with its console in TMPDIR. `pages` and `open` fill it with 100,000 topics, 1,000 groups and
30 days of history; `--scale 0.01` is a trial. `changes` uses a file store, or the store that $PENSTOCK_BENCH_CONFIG
names, such as zookeeper://HOST:PORT/PATH. The exit code is 0 also when a figure misses its bar.
"""

import sys

from bench.cases import Case, run_cases
from bench.console import changes, open_pages, page_times

CASES: dict[str, Case] = {"pages": page_times.run, "open": open_pages.run, "changes": changes.run}

if __name__ == "__main__":
    sys.exit(run_cases("python -m bench.console", __doc__ or "", CASES))
