"""Cases million, flat, restart, cold, fsync: `python -m bench.alone CASE … [--scale F] [--seconds S]`; one table each,
with its bars.

Each case starts a Penstock of its own in TMPDIR, as `make bench` does, and goes through its proxies. `--scale 0.01` is
a trial: it shrinks the topics of `million` and the bytes of `restart` and `cold`, and its figures are meaningless. The
exit code is 0 also when a figure misses its bar.
"""

import argparse
import json
import signal
import sys
from dataclasses import asdict
from types import FrameType

from rich.console import Console

from bench.alone import cold, flat, fsync, million, restart
from bench.alone.figures import table
from bench.errors import BenchError
from bench.generator import require_native
from bench.outcome import commit
from bench.report import machine

CASES = {"million": million.run, "flat": flat.run, "restart": restart.run, "cold": cold.run, "fsync": fsync.run}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.alone", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="of topics and bytes (default 1)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measured window (default 10)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)  # as an exception, so that started processes are ended
    try:
        require_native()
        for case in options.cases:
            figures = CASES[case](options.scale, options.seconds, say)
            if options.output == "json":
                rows = [{**asdict(each), "met": each.met} for each in figures]
                print(json.dumps({"case": case, "machine": machine(), "commit": commit(), "figures": rows}))
            else:
                Console(width=None if sys.stdout.isatty() else 140).print(table(case, figures))
    except BenchError as fault:
        say(f"bench: {fault}")
        return 1
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
