"""`python -m penstock.demo`: the demo as a process of its own, so that the supervisor stays small and responsive."""

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from penstock.demo.access import make_access
from penstock.demo.errors import DemoError
from penstock.demo.pair import Pair
from penstock.demo.programs import TOOLS, choose
from penstock.demo.source import DemoSource, read_source, usual_file
from penstock.demo.view import figures, make_view
from penstock.up.files import read_running

LOOK_S = 0.1


def main() -> int:
    """Run one demo on the `up` of --data. Exit code 0: proven; 1: failed."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # unwinds, so that the two programs are stopped
    options = parse()
    try:
        proven, words = run(options)
    except DemoError as fault:
        proven, words = False, str(fault)
    print(f"demo: {'PROVEN' if proven else 'FAILED'}: {words}", flush=True)
    return 0 if proven else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description=main.__doc__)
    parser.add_argument("--data", required=True, type=Path, help="use the running `penstock up` of this data directory")
    parser.add_argument("--file", type=Path, help="send this file (default: a text file of this machine)")
    parser.add_argument("--lines", type=int, help="send only this many lines (default: all)")
    for role in ("producer", "consumer"):
        parser.add_argument(f"--{role}", choices=("auto", *TOOLS), default="auto")
    return parser.parse_args()


def run(options: argparse.Namespace) -> tuple[bool, str]:
    """Run the demo; return whether all is proven, and the verdict as a sentence."""
    facts = read_running(options.data)
    if facts is None:
        raise DemoError(f"{options.data}: no running Penstock: start one with `penstock up --data {options.data}`")
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch:
        return prove(facts, read_source(options.file or usual_file(), options.lines, Path(scratch)), options)


def prove(facts: dict[str, Any], source: DemoSource, options: argparse.Namespace) -> tuple[bool, str]:
    producer, producer_notes = choose("producer", options.producer)
    consumer, consumer_notes = choose("consumer", options.consumer)
    for note in dict.fromkeys(producer_notes + consumer_notes):
        print(f"demo: {note}", flush=True)
    size = f"{source.count:,} lines, {source.size_bytes:,} bytes"
    print(f"demo: {source.name} ({size}), producer {producer.language}, consumer {consumer.language}", flush=True)
    access = make_access(facts["config"], source.longest_bytes, facts.get("secrets_key"))
    pair = Pair(source, access, (producer, consumer), facts)
    try:
        fault = watch(pair)
    finally:
        pair.stop()
    return verdict(pair, fault)


def watch(pair: Pair) -> str:
    """Show progress until both processes have ended; return the reason of a failure, or ""."""
    pause = threading.Event()
    with make_view() as view:
        while not pair.finished:
            if fault := pair.fault():
                return fault
            view.show(pair)
            pause.wait(LOOK_S)
    return ""


def verdict(pair: Pair, fault: str) -> tuple[bool, str]:
    check, proven = pair.check, pair.check.finish()
    if fault or not proven:
        return False, " ".join(filter(None, (fault, check.faults.sentence())))
    shown = dict(figures(pair))
    return True, (
        f"{check.arrived:,} lines of {check.source.name} went {pair.producer.language} → {pair.consumer.language}, each once, "
        f"in order per key, content equal; SHA-256 over all {check.total()} = the file's; {shown['arrived/s']}/s, "
        f"call p50 {shown['call p50 ms']} ms, p99 {shown['call p99 ms']} ms, {check.redelivered} redelivered"
    )


if __name__ == "__main__":
    sys.exit(main())
