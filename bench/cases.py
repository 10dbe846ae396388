"""The command line of a set of cases, each with one table of figures against its bars."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import FrameType

from rich.console import Console

from bench.errors import BenchError
from bench.figures import Figure, table
from bench.generator import require_native
from bench.outcome import commit
from bench.report import machine

Case = Callable[[float, float, Callable[[str], None]], list[Figure]]
"""Of the scale, the seconds of a window, and a function that prints progress."""


def run_cases(program: str, text: str, cases: Mapping[str, Case], arguments: list[str] | None = None) -> int:
    """Run the cases that the command line names, and print each one's figures; returns the exit code."""
    parser = argparse.ArgumentParser(prog=program, description=text.splitlines()[0])
    parser.add_argument("cases", nargs="+", choices=list(cases), metavar="CASE", help=", ".join(cases))
    parser.add_argument("--scale", type=float, default=1.0, help="of topics, bytes and repetitions (default 1)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measured window (default 10)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)  # as an exception, so that started processes are ended
    try:
        require_native()
        for case in options.cases:
            figures = cases[case](options.scale, options.seconds, say)
            if options.output == "json":
                rows = [{**asdict(each), "met": each.met} for each in figures]
                print(json.dumps({"case": case, "machine": machine(), "commit": commit(), "figures": rows}), flush=True)
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
