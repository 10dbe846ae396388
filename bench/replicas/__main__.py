"""Cases calls, paced, ready, catch_up, behind: `python -m bench.replicas CASE … [--scale F] [--seconds S]`; one table
each, with its bars.

Each case starts a `penstock up --replicas 2` of its own in TMPDIR, and what it is compared with beside it. `--scale
0.01` is a trial: it shrinks the bytes and repetitions, and its figures are meaningless. The exit code is 0 also when a
figure misses its bar.
"""

import sys

from bench.cases import Case, run_cases
from bench.replicas import behind, calls, catch_up, paced, ready

CASES: dict[str, Case] = {
    "calls": calls.run,
    "paced": paced.run,
    "ready": ready.run,
    "catch_up": catch_up.run,
    "behind": behind.run,
}

if __name__ == "__main__":
    sys.exit(run_cases("python -m bench.replicas", __doc__ or "", CASES))
