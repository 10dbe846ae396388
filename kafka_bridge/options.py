"""Command line of the Kafka bridge."""

import argparse
from pathlib import Path

from common.address import engine_address, engine_addresses, host_and_port
from common.process_options import ProcessParser
from common.secret_file import secret_faults

HELP = {
    "config": "Configuration store with the Kafka clusters: file:///dir or zookeeper://host,host/chroot.",
    "cluster-key": "Key by which this process and the proxies authenticate to each other.",
    "listen": "Address for proxies: a socket file where they run on this machine, else host and port.",
    "kafka-files": "Directory below which the password and certificate files of Kafka clusters must be, after symbolic "
    "links are resolved; repeatable (default: the directory of --cluster-key, and /etc/penstock).",
    "engine": "The only broker group, by the addresses of its brokers; unset: those of the configuration.",
    "snapshot": "File for the last configuration, for a start without the store; unset: none.",
    "ops": "Address of /metrics, /healthz and /readyz (default 127.0.0.1:0, a free port).",
    "ready-fd": "File descriptor that gets one JSON line once the bridge serves.",
}


CONFIGURED = Path("/etc/penstock")
"""The files of a machine's services are here, beside the directory of the cluster key."""


def directory(text: str) -> Path:
    """Of an option. Raises ArgumentTypeError."""
    if not Path(text).is_absolute():
        raise argparse.ArgumentTypeError(f"{text}: use the absolute path of a directory")
    return Path(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options. Prints all faults and exits with 2 when they cannot be used."""
    parser = ProcessParser(prog="penstock kafka-bridge", description="Serve proxies that send to Kafka clusters.")

    def add(name: str, metavar: str, **settings: object) -> None:
        parser.add_argument(f"--{name}", metavar=metavar, help=HELP[name], **settings)  # type: ignore[arg-type]

    add("config", "URL", required=True)
    add("cluster-key", "FILE", required=True)
    add("listen", "unix:PATH|HOST:PORT", type=engine_address, required=True)
    add("kafka-files", "DIR", type=directory, action="append")
    add("engine", "HOST:PORT|unix:PATH[,…]", type=engine_addresses)
    add("snapshot", "FILE")
    add("ops", "HOST:PORT", type=host_and_port, default=("127.0.0.1", 0))
    add("ready-fd", "N", type=int)
    options = parser.parse_args(arguments)
    if found := secret_faults({"--cluster-key": options.cluster_key}):
        parser.error("; ".join(found))
    options.kafka_files = options.kafka_files or (Path(options.cluster_key).absolute().parent, CONFIGURED)
    return options
