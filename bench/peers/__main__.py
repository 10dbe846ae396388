"""Penstock and the peers in one run on this machine: `python -m bench.peers [--only NAMES] [--seconds S] [--warmup W]
[-o table|json]`.

The exit code is 1 when a system could not be measured or its figures are invalid; the table shows a missed ratio.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import FrameType

from rich.console import Console

from bench.errors import BenchError
from bench.outcome import commit
from bench.peers.bars import as_dicts
from bench.peers.figures import Figures
from bench.peers.report import figures_table, line, ratios_table
from bench.peers.systems import SYSTEMS, Start
from bench.peers.workloads import WORKLOADS, PeerWorkload, Terms
from bench.report import machine


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # As an exception, so that every started server is ended.
    signal.signal(signal.SIGTERM, _leave)
    terms = Terms(options.seconds, options.warmup, options.clients)
    runs: list[Figures] = []
    faults: list[str] = []
    for name, start in chosen(options.only):
        try:
            runs += run_system(start, options.workloads, terms)
        except BenchError as broken:
            faults.append(f"{name}: {broken}")
    faults += [f"{run.workload}, {run.system}: {complaint}" for run in runs for complaint in run.complaints]
    if options.output == "json":
        print(json.dumps(as_dict(runs, faults, terms), indent=1))
    else:
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(figures_table(runs, terms))
        console.print(ratios_table(runs))
    for fault in faults:
        say(f"peers: {fault}")
    return int(bool(faults))


def run_system(start: Start, workloads: list[PeerWorkload], terms: Terms) -> Iterator[Figures]:
    """Run all workloads against one start of a system; later workloads find it warmer.

    Raises:
        BenchError: it did not start, or a run broke off; what was yielded before is good.
    """
    with start() as running:
        for workload in filter(running.answers, workloads):
            figures = running.run(workload, terms)
            say(line(figures))
            yield figures


def chosen(names: list[str]) -> Iterator[tuple[str, Start]]:
    for name in names:
        yield from SYSTEMS[name].items()


def as_dict(runs: list[Figures], faults: list[str], terms: Terms) -> dict:
    return {
        "machine": machine(),
        "commit": commit(),
        **asdict(terms),
        "runs": [run.as_dict() for run in runs],
        "ratios": as_dicts(runs),
        "faults": faults,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--only", type=_names_of(SYSTEMS), default=list(SYSTEMS), metavar="NAMES", help=f"of {', '.join(SYSTEMS)}")
    by_name = {workload.name: workload for workload in WORKLOADS}
    pick = _names_of(by_name)
    add("--workloads", type=lambda text: [by_name[name] for name in pick(text)], default=list(WORKLOADS), metavar="NAMES",
        help=f"of {', '.join(by_name)}")  # fmt: skip
    add("--seconds", type=float, default=20.0, help="of each measured window (default 20)")
    add("--warmup", type=float, default=30.0, help="seconds at full load before each (default 30; less flatters us)")
    add(
        "--clients",
        type=int,
        help="objects of a peer's client library that 16 threads share (default 1; 16: a connection per thread)",
    )
    add("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _names_of(known: dict) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := sorted(set(given) - set(known)):
            raise argparse.ArgumentTypeError(f"nothing is named {', '.join(unknown)}; there are {', '.join(known)}")
        return given

    return names


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
