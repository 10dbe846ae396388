"""Named workloads against their bars: `python -m bench [WORKLOAD …] [-o table|json]`, run by `make bench`.

The exit code is 0 also when a bar is missed: figures depend on the machine, and the table shows a missed bar.
"""

import argparse
import json
import sys

from rich.console import Console

from bench.errors import BenchError
from bench.report import line, machine
from bench.suite import bars_as_dict, bars_table, run_suite
from bench.workloads import NAMES, SUITE


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(NAMES))
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.workloads) - set(NAMES))
    if unknown:
        parser.error(f"no workload is named {', '.join(unknown)}")
    try:
        results = run_suite(options.workloads or SUITE, lambda text: print(text, file=sys.stderr, flush=True))
    except BenchError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    if options.output == "json":
        runs = [{**outcome.as_dict(), "bars": bars_as_dict(workload, outcome)} for workload, outcome in results]
        print(json.dumps({"machine": machine(), "runs": runs}, indent=1))
    else:
        for _, outcome in results:
            print(line(outcome))
        Console(width=None if sys.stdout.isatty() else 140).print(bars_table(results))
    for _, outcome in results:
        for complaint in outcome.complaints:
            print(f"bench: {outcome.name}: {complaint}", file=sys.stderr)
    return int(any(outcome.complaints for _, outcome in results))


if __name__ == "__main__":
    sys.exit(main())
