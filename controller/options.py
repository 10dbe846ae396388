"""Command line of the controller."""

import argparse

from common.address import host_and_port
from common.process_options import ProcessParser
from common.secret_file import secret_faults

HELP = {
    "config": "Configuration store; broker groups with replicas are coordinated below it.",
    "controller-key": "File with the secret of controllers. Brokers and controllers prove to each other that they know it.",
    "cluster-key": "In place of --controller-key, where brokers have none: the secret of the cluster, which every proxy has.",
    "name": "Name of this controller among the candidates, for people.",
    "ops": "Address of /metrics, /healthz and /readyz (default 127.0.0.1:0, a free port).",
    "ready-fd": "File descriptor that gets one JSON line once the controller follows the groups.",
}
NAME_CHARS_MAX = 100


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options. Prints all faults and exits with 2 when they cannot be used."""
    parser = ProcessParser(
        prog="penstock controller", description="Move broker groups with replicas between their states."
    )

    def add(name: str, metavar: str, **settings: object) -> None:
        parser.add_argument(f"--{name}", metavar=metavar, help=HELP[name], **settings)  # type: ignore[arg-type]

    add("config", "URL", required=True)
    add("controller-key", "FILE")
    add("cluster-key", "FILE")
    add("name", "NAME", required=True)
    add("ops", "HOST:PORT", type=host_and_port, default=("127.0.0.1", 0))
    add("ready-fd", "N", type=int)
    options = parser.parse_args(arguments)
    found = secret_faults({"--controller-key": options.controller_key, "--cluster-key": options.cluster_key})
    if bool(options.controller_key) == bool(options.cluster_key):
        found.append("--controller-key FILE: use it, or --cluster-key FILE while brokers have no --controller-key")
    if not 1 <= len(options.name) <= NAME_CHARS_MAX or not options.name.isprintable():
        found.append(f"--name: use 1 to {NAME_CHARS_MAX} printable characters")
    if found:
        parser.error("; ".join(found))
    return options
