"""Command line of the engine."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from common.address import engine_address, host_and_port
from common.config.reported_process import WILDCARDS
from common.names import NAME_RULE, is_name
from common.process_options import ProcessParser
from common.secret_file import secret_fault
from engine.config import LogConfig

MIB = 1 << 20
KEY_BYTES_MIN = 16
RETENTION_HOURS_MAX = 1_000_000
KEYS_OF_ROLES = ("admin-key", "replica-key", "controller-key")
HELP = {
    "data": "Data directory of the log. One engine uses it at a time.",
    "listen": "Address for proxies; port 0 takes a free one.",
    "socket-file": "Unix socket that serves processes of this machine at less cost than TCP.",
    "address": "With --broker: where controllers and the other brokers of the group reach this one (default: --listen).",
    "ops": "Address of /metrics, /healthz and /readyz (default 127.0.0.1:0, a free port).",
    "cluster-key": f"File with the secret of the cluster, at least {KEY_BYTES_MIN} bytes. Peers prove that they know it.",
    "admin-key": "File with the secret of operators. Without it no link may administer this engine.",
    "replica-key": "File with the secret of the brokers of a group, by which they copy the log from one another. Without it "
    "they use the cluster key, which every proxy has.",
    "controller-key": "File with the secret of controllers. Without it they use the cluster key.",
    "also-cluster-key": "Take the cluster key for brokers and controllers, too, and use it where a broker refuses the replica "
    "key: while a running cluster gets these keys.",
    "config": "Configuration store to follow. The engine starts and serves while the store is unreachable.",
    "broker-group": "Name of this engine's broker group in the configuration (default main).",
    "broker": "Name of this engine among the replicas of its broker group, which --config coordinates. Without it the group "
    "has this engine only.",
    "first": "Begin the log of the group if it has no master yet and DIR no log. Without it a broker waits for a master.",
    "segment-mib": "Size of a log file; recovery scans one (default 256).",
    "retention-hours": "Retention of topics that define none; 0 keeps messages for ever (default 72).",
    "log-gib-max": "Delete the oldest segments when the log is larger, whatever their age; 0 sets no limit (default 0).",
    "disk-percents": "Disk usage at which to warn, to delete early, and to refuse appends (default 85,90,95).",
    "disk-reserve-mib": "Refuse appends when less disk space is free (default 512).",
    "id-window-mib": "Memory for the ids that sends are checked against (default 256).",
    "look-up": "Look-up files to build: id, key, both with a comma, or none (default id,key).",
    "cold-mib-s": "Disk bandwidth for readers far behind the end (default 100).",
    "slave-read-mib": "Distance from the end of the log from which on slaves serve reads by position, and lend their master the "
    "bytes for pulls of groups; 0 leaves all to the master (default: 40 percent of this machine's memory).",
    "scrub-mib-s": "Pace at which old data is read again and verified; 0 turns it off (default 8).",
    "expire-days": "Forget a group without a definition, and an empty topic of a family, after N days of running without "
    "a use; 0: never (default 30).",
    "metrics-groups": "Groups with a series of their lag on /metrics, those with the largest (default 100).",
    "metrics-topics": "Topics with series of their own on /metrics: names, or prefixes followed by *, with commas between them "
    "(default none).",
    "progress-ms": "Minimum time between two progress records of a queue (default 200).",
    "ready-fd": "File descriptor that gets one JSON line once the engine serves.",
}


def percents(text: str) -> tuple[int, ...]:
    """Three percentages, separated by commas."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: use three percentages, as 85,90,95")
    return tuple(map(int, parts))


def look_up(text: str) -> tuple[str, ...]:
    """Names separated by commas; `none` is empty."""
    return () if text == "none" else tuple(text.split(","))


def topic_patterns(text: str) -> tuple[str, ...]:
    """Names of topics, or prefixes followed by `*`, separated by commas."""
    parts = tuple(filter(None, text.split(",")))
    for part in parts:
        if "*" in part[:-1]:
            raise argparse.ArgumentTypeError(f"{part!r}: use a name, or a prefix followed by *")
    return parts


def memory_mib() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB


def log_config(options: argparse.Namespace) -> LogConfig:
    """The log's settings from the options. Raises EngineConfigError with all faults."""
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
    """The options. Prints all faults and exits with 2 when they cannot be used."""
    parser = ProcessParser(prog="penstock engine", description="Store messages and deliver them to groups.")

    def add(name: str, metavar: str, **settings: object) -> None:
        parser.add_argument(f"--{name}", metavar=metavar, help=HELP[name], **settings)  # type: ignore[arg-type]

    add("data", "DIR", required=True)
    add("listen", "HOST:PORT", type=host_and_port, required=True)
    add("socket-file", "PATH")
    add("address", "HOST:PORT|unix:PATH", type=engine_address)
    add("ops", "HOST:PORT", type=host_and_port, default=("127.0.0.1", 0))
    add("cluster-key", "FILE", required=True)
    for name in KEYS_OF_ROLES:
        add(name, "FILE")
    parser.add_argument("--also-cluster-key", action="store_true", help=HELP["also-cluster-key"])
    add("config", "URL")
    add("broker-group", "NAME", default="main")
    add("broker", "NAME")
    parser.add_argument("--first", action="store_true", help=HELP["first"])
    add("segment-mib", "N", type=int, default=256)
    add("retention-hours", "N", type=float, default=72)
    add("log-gib-max", "N", type=float, default=0)
    add("disk-percents", "W,D,R", type=percents, default=(85, 90, 95))
    add("disk-reserve-mib", "N", type=int, default=512)
    add("id-window-mib", "N", type=int, default=256)
    add("look-up", "id,key|none", type=look_up, default=LogConfig.look_up)
    add("cold-mib-s", "N", type=int, default=100)
    add("slave-read-mib", "N", type=int, default=memory_mib() * 2 // 5)
    add("scrub-mib-s", "N", type=int, default=8)
    add("expire-days", "N", type=int, default=30)
    add("metrics-groups", "N", type=int, default=100)
    add("metrics-topics", "NAMES", type=topic_patterns, default=())
    add("progress-ms", "N", type=int, default=200)
    add("ready-fd", "N", type=int)
    options = parser.parse_args(arguments)
    if found := faults(options):
        parser.error("; ".join(found))
    return options


def faults(options: argparse.Namespace) -> list[str]:
    """Every violated rule at once."""
    found = []
    for name, minimum, maximum in (
        ("segment-mib", 1, 2048),
        ("slave-read-mib", 0, 1 << 24),
        ("scrub-mib-s", 0, 4096),
        ("progress-ms", 10, 60_000),
        ("expire-days", 0, 3_660),
        ("metrics-groups", 0, 10_000),
    ):
        value = getattr(options, name.replace("-", "_"))
        if not minimum <= value <= maximum:
            found.append(f"--{name} {value}: use {minimum}..{maximum}")
    if not 0 <= options.retention_hours <= RETENTION_HOURS_MAX:
        found.append(f"--retention-hours {options.retention_hours:g}: use 0..{RETENTION_HOURS_MAX:,}")
    if options.broker is not None and not is_name(options.broker):
        found.append(f"--broker {options.broker}: {NAME_RULE}")
    if options.broker is not None and not options.config:
        found.append("--broker: needs --config URL, which coordinates the replicas")
    if options.address is not None and options.broker is None:
        found.append("--address: needs --broker NAME: an only engine is found by its entry in the configuration")
    if options.broker is not None and options.address is None and options.listen.host in WILDCARDS:
        found.append(f"--listen {options.listen}: other brokers cannot reach it there: add --address HOST:PORT")
    if options.also_cluster_key and not (options.replica_key or options.controller_key):
        found.append("--also-cluster-key: needs --replica-key or --controller-key: without them it is so anyway")
    files = {"cluster-key": options.cluster_key} | {
        name: getattr(options, name.replace("-", "_")) for name in KEYS_OF_ROLES
    }
    return found + key_faults({f"--{name}": Path(file) for name, file in files.items() if file})


def key_faults(paths: Mapping[str, Path]) -> list[str]:
    """Violated rules of the key files, by their options."""
    found = [fault for option, path in paths.items() if (fault := secret_fault(path, KEY_BYTES_MIN, option))]
    owners: dict[bytes, str] = {}
    for option, path in paths.items() if not found else ():
        other = owners.setdefault(path.read_bytes(), option)
        if other != option:
            found.append(f"{option} {path}: the same secret as {other}: use another one")
    return found
