"""Penstock and its peers with replicas in one run on this machine: `python -m bench.peers.replicated [--only NAMES]
[--seconds S] [--warmup W] [--times N] [--out FILE]`.

Each system: its closed loop and its open loop, then N times `kill -9` and SIGSTOP of the leader under a steady load. The
exit code is 1 when a system could not be measured or its figures are invalid; a missed ratio is shown.
"""

import argparse
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from bench.errors import BenchError
from bench.outcome import commit
from bench.peers.figures import Figures
from bench.peers.replicated.bars import medians, ratios
from bench.peers.replicated.switch_over import SwitchOver, switch_overs
from bench.peers.replicated.systems import SYSTEMS, calls
from bench.peers.replicated.workloads import WORKLOADS
from bench.peers.report import line
from bench.peers.workloads import Terms
from bench.report import machine


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)  # as an exception, so that every started server is ended
    terms = Terms(options.seconds, options.warmup)
    runs: list[Figures] = []
    switches: list[SwitchOver] = []
    faults: list[str] = []
    loads = [os.getloadavg()[0]]
    for name in options.only:
        try:
            with SYSTEMS[name]() as system:
                for workload in WORKLOADS:
                    for figures in calls(system, workload, terms):
                        runs.append(figures)
                        say(line(figures))
                for driven in system.steady:
                    for switch in switch_overs(system, driven, options.times, options.warmup, say):
                        switches.append(switch)
        except BenchError as broken:
            faults.append(f"{name}: {broken}")
        loads.append(os.getloadavg()[0])
        found = as_dict(runs, switches, faults + complaints(runs), terms, loads)
        if options.out:  # after each system: an hour's figures are not lost with the last one
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    if not options.out:
        print(json.dumps(found, indent=1))
    faults += complaints(runs)
    for (system_name, strike), gap_ms in medians(switches).items():
        say(f"{system_name}, {strike}: median {gap_ms:,.0f} ms")
    for fault in faults:
        say(f"peers: {fault}")
    return int(bool(faults))


def complaints(runs: list[Figures]) -> list[str]:
    return [f"{run.workload}, {run.system}: {text}" for run in runs for text in run.complaints]


def as_dict(
    runs: list[Figures], switches: list[SwitchOver], faults: list[str], terms: Terms, loads: list[float]
) -> dict[str, Any]:
    return {
        "machine": machine(),
        "commit": commit(),
        "load": loads,  # of the last minute, before the first system and after each
        **asdict(terms),
        "runs": [run.as_dict() for run in runs],
        "switches": [asdict(each) for each in switches],
        "ratios": [each.as_dict() for each in ratios(runs, switches)],
        "faults": faults,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.replicated", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    add("--only", type=_names, default=list(SYSTEMS), metavar="NAMES", help=f"of {', '.join(SYSTEMS)}")
    add("--seconds", type=float, default=20.0, help="of each measured window (default 20)")
    add("--warmup", type=float, default=30.0, help="seconds at full load before each (default 30; less flatters us)")
    add("--times", type=int, default=5, help="strikes of each kind (default 5)")
    add("--out", type=Path, metavar="FILE", help="write the JSON there (default: standard output)")
    return parser


def _names(text: str) -> list[str]:
    given = text.split(",")
    if unknown := sorted(set(given) - set(SYSTEMS)):
        raise argparse.ArgumentTypeError(f"nothing is named {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    return given


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
