"""Cases dual, mirror, home, java, pull, fence, inventory, many: `python -m bench.kafka CASE … [--scale F] [--seconds S]`.

One table each, with its bars. Each case starts a Kafka broker and a Penstock of its own in TMPDIR. Broker, bridge, engine,
proxies and generator share the machine. The exit code is 0 also when a figure misses its bar.
"""

import sys

from bench.cases import Case, run_cases
from bench.kafka import dual, homes, many, moves, single_calls

CASES: dict[str, Case] = {
    "dual": dual.run,
    "mirror": homes.run_mirror,
    "home": homes.run_home,
    "pull": homes.run_pull,
    "java": single_calls.run_java,
    "fence": moves.run_fence,
    "inventory": moves.run_inventory,
    "many": many.run_many,
}

if __name__ == "__main__":
    sys.exit(run_cases("python -m bench.kafka", __doc__ or "", CASES))
