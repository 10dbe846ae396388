"""Cases million, flat, restart, cold, fsync: `python -m bench.alone CASE … [--scale F] [--seconds S]`; one table each,
with its bars.

Each case starts a Penstock of its own in TMPDIR, as `make bench` does, and goes through its proxies. `--scale 0.01` is
a trial: it shrinks the topics of `million` and the bytes of `restart` and `cold`, and its figures are meaningless. The
exit code is 0 also when a figure misses its bar.
"""

import sys

from bench.alone import cold, flat, fsync, million, restart
from bench.cases import Case, run_cases

CASES: dict[str, Case] = {
    "million": million.run,
    "flat": flat.run,
    "restart": restart.run,
    "cold": cold.run,
    "fsync": fsync.run,
}

if __name__ == "__main__":
    sys.exit(run_cases("python -m bench.alone", __doc__ or "", CASES))
