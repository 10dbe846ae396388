"""Latency of live sends beside an archive run: `python -m bench.spark.beside --messages 3000000`.

Question: how much longer does a send take while `penstock pipeline archive run` reads another topic of the same engine
on the same two cores? One message of 200 bytes per call, at a fixed rate, independent of the answers; a latency counts
from the planned time, so it has the sender's own delays. The command runs as a user runs it, its start of Spark
included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.generator import LoadTarget
from bench.instance import PENSTOCK
from bench.offered import Offered
from bench.spark.fill import fill
from bench.spark.sides import SparkSide, penstock_side

ARCHIVED, LIVE = "archived", "live"
BODY_BYTES = 200
RUN_S_MAX = 600
RATIO_MAX = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.beside", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=3_000_000, help="to archive")
    parser.add_argument("--rate", type=float, default=1000, help="live messages per second")
    parser.add_argument("--seconds", type=float, default=20, help="before and after the run, each")
    options = parser.parse_args()
    with (
        penstock_side([ARCHIVED, LIVE]) as side,
        tempfile.TemporaryDirectory(prefix="penstock-bench-beside-") as folder,
    ):
        fill(side, ARCHIVED, options.messages)
        target, seconds = target_of(side), options.seconds
        before = latencies(target, options.rate, seconds)
        line = archive_line(side, folder)
        began_s = time.monotonic()
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as job:
            during: list[float] = []
            while job.poll() is None and time.monotonic() - began_s < RUN_S_MAX:
                during += latencies(target, options.rate, 2)
            told = json.loads(job.communicate(timeout=RUN_S_MAX)[0])
        after = latencies(target, options.rate, seconds)
    phases = {name: percentiles(each) for name, each in (("before", before), ("during", during), ("after", after))}
    ratio = phases["during"]["p99_ms"] / max(phases["before"]["p99_ms"], phases["after"]["p99_ms"])
    print(
        json.dumps({"rate": options.rate, **phases, "p99_ratio": round(ratio, 2), "load": os.getloadavg()[0], **told})
    )
    return 0 if ratio <= RATIO_MAX else 1


def target_of(side: SparkSide) -> LoadTarget:
    key = json.loads(Path(side.write["credential"]).read_text())
    return LoadTarget(_address(side.write), _address(side.read), key["app"], key["key_id"], key["secret"])


def _address(options: dict[str, str]) -> tuple[str, int]:
    host, _, port = options["endpoint"].rpartition(":")
    return host, int(port)


def archive_line(side: SparkSide, folder: str) -> list[str]:
    proxies = ["--endpoint", side.read["endpoint"], "--credential", side.read["credential"]]
    return [*PENSTOCK, "pipeline", "archive", "run", f"{folder}/archive", ARCHIVED, *proxies, "-o", "json"]


def latencies(target: LoadTarget, rate: float, seconds: float) -> list[float]:
    """Seconds per stored message. Every message must be stored."""
    offered = Offered(target, LIVE, rate, seconds, body_bytes=BODY_BYTES, slot_s=3600, began_s=time.monotonic())
    slots = offered.result().values()
    refused = {code: count for slot in slots for code, count in slot.codes.items() if code}
    if refused:
        print(f"live sends were refused: {refused}", file=sys.stderr)
    return [each for slot in slots for each in slot.latencies_s]


def percentiles(found: Sequence[float]) -> dict[str, float]:
    ordered = sorted(found)
    return {
        "count": len(ordered),
        **{f"p{share}_ms": round(ordered[int(len(ordered) * share / 100)] * 1000, 2) for share in (50, 90, 99)},
    }


if __name__ == "__main__":
    sys.exit(main())
