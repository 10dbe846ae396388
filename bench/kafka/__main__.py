"""Cases dual: `python -m bench.kafka CASE … [--scale F] [--seconds S]`; one table each, with its bars.

Each case starts a Kafka broker and a Penstock of its own in TMPDIR. Broker, bridge, engine, proxies and generator share
the machine. The exit code is 0 also when a figure misses its bar.
"""

import sys

from bench.cases import Case, run_cases
from bench.kafka import dual

CASES: dict[str, Case] = {"dual": dual.run}

if __name__ == "__main__":
    sys.exit(run_cases("python -m bench.kafka", __doc__ or "", CASES))
