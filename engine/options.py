"""The command line of the engine."""

import argparse
from pathlib import Path

MIB = 1 << 20


def address(text: str) -> tuple[str, int]:
    """HOST:PORT or [IPv6]:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; says all that is wrong with them and exits with 2."""
    parser = argparse.ArgumentParser(prog="penstock engine", description="Store messages and hand them out.")
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="the log's directory; one engine at a time")
    add("--listen", type=address, required=True, metavar="HOST:PORT", help="for proxies; port 0 takes a free one")
    add("--ops", type=address, default=("127.0.0.1", 0), metavar="HOST:PORT", help="/metrics /healthz /readyz")
    add("--cluster-key", required=True, metavar="FILE", help="what proxies must know to be answered")
    add("--config", metavar="URL", help="followed, and the applied version reported; the engine serves without it")
    add("--broker-group", default="main", metavar="NAME", help="told to proxies")
    add("--segment-mib", type=int, default=256, metavar="N", help="size of a log file; recovery scans one")
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
    if not 10 <= options.progress_ms <= 60_000:
        found.append("--progress-ms: 10..60000")
    key = Path(options.cluster_key)
    if not key.is_file():
        found.append(f"--cluster-key: there is no file {key}")
    elif key.stat().st_size < 16:
        found.append("--cluster-key: at least 16 bytes")
    return found
