"""The command line of the engine."""

import argparse
from pathlib import Path

from common.address import host_and_port
from engine.config import LogConfig

MIB = 1 << 20


def percents(text: str) -> tuple[int, ...]:
    """Three whole numbers with commas."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not three percentages, as 85,90,95")
    return tuple(map(int, parts))


def look_up(text: str) -> tuple[str, ...]:
    """Names with commas, or none."""
    return () if text == "none" else tuple(text.split(","))


def log_config(options: argparse.Namespace) -> LogConfig:
    """The log's part of the options. Raises ConfigError with all faults."""
    warn, delete, refuse = options.disk_percents
    return LogConfig(
        segment_bytes=options.segment_mib * MIB,
        retention_ms=round(options.retention_hours * 3_600_000),
        log_bytes_max=round(options.log_gib_max * 1024) * MIB,
        disk_warn_percent=warn, disk_delete_percent=delete, disk_refuse_percent=refuse,
        disk_reserve_bytes=options.disk_reserve_mib * MIB,
        cold_bytes_a_second=options.cold_mib_s * MIB,
        id_window_bytes_max=options.id_window_mib * MIB,
        look_up=options.look_up,
    ).checked()  # fmt: skip


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; says all that is wrong with them and exits with 2."""
    parser = argparse.ArgumentParser(prog="penstock engine", description="Store messages and hand them out.")
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="the log's directory; one engine at a time")
    add("--listen", type=host_and_port, required=True, metavar="HOST:PORT", help="for proxies; port 0 takes a free one")
    add("--socket-file", metavar="PATH", help="the same for processes of this machine, without TCP")
    add("--ops", type=host_and_port, default=("127.0.0.1", 0), metavar="HOST:PORT", help="/metrics /healthz /readyz")
    add("--cluster-key", required=True, metavar="FILE", help="what proxies must know to be answered")
    add("--config", metavar="URL", help="followed, and the applied version reported; the engine serves without it")
    add("--broker-group", default="main", metavar="NAME", help="as the configuration names it")
    add("--segment-mib", type=int, default=256, metavar="N", help="size of a log file; recovery scans one")
    add("--retention-hours", type=float, default=72, metavar="N", help="for topics without their own; 0: for ever")
    add(
        "--log-gib-max",
        type=float,
        default=0,
        metavar="N",
        help="of segments and what lies beside them; older ones go; 0: no limit",
    )
    add(
        "--disk-percents",
        type=percents,
        default=(85, 90, 95),
        metavar="W,D,R",
        help="warn, delete early, refuse appends",
    )
    add("--disk-reserve-mib", type=int, default=512, metavar="N", help="refuse appends when less is free")
    add("--id-window-mib", type=int, default=256, metavar="N", help="memory for ids that sends are checked against")
    add("--look-up", type=look_up, default=LogConfig.look_up, metavar="id,key|none", help="files to find messages by")
    add("--cold-mib-s", type=int, default=100, metavar="N", help="what readers far behind may take from the disk")
    add("--scrub-mib-s", type=int, default=8, metavar="N", help="pace of reading old data again; 0: never")
    add("--progress-ms", type=int, default=200, metavar="N", help="least time between two progress records of a queue")
    add("--ready-fd", type=int, metavar="N", help="a JSON line is written here once the engine serves")
    options = parser.parse_args(arguments)
    if found := faults(options):
        parser.error("; ".join(found))
    return options


def faults(options: argparse.Namespace) -> list[str]:
    """Every violated rule at once."""
    found = []
    if not 1 <= options.segment_mib <= 2048:
        found.append("--segment-mib: 1..2048")
    if not 0 <= options.scrub_mib_s <= 4096:
        found.append("--scrub-mib-s: 0..4096")
    if not 10 <= options.progress_ms <= 60_000:
        found.append("--progress-ms: 10..60000")
    key = Path(options.cluster_key)
    if not key.is_file():
        found.append(f"--cluster-key: there is no file {key}")
    elif key.stat().st_size < 16:
        found.append("--cluster-key: at least 16 bytes")
    return found
