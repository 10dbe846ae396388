"""The command line of the consumer proxy."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.address import engine_addresses, host_and_port
from common.config.root_keys import ROOT_KEYS_HELP
from common.net import Limits
from common.process_options import ProcessParser
from common.secret_file import secret_faults
from common.tracing.options import options_of_traces


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the options. Names all faults at once and exits with 2."""
    parser = ProcessParser(prog="penstock consumer-proxy", description="Serve `pull` in front of engines.")
    _add_listeners(parser.add_argument)
    _add_stores(parser.add_argument)
    options_of_traces(parser)
    options = parser.parse_args(arguments)
    if found := faults(options):
        parser.error("; ".join(found))
    return options


def _add_listeners(add: Callable[..., Any]) -> None:
    applications = "Address for applications; port 0 selects a free port."
    add("--listen", type=host_and_port, required=True, metavar="HOST:PORT", help=applications)
    add("--tls-listen", type=host_and_port, metavar="HOST:PORT", help="Address for applications over TLS.")
    add("--tls-cert", metavar="FILE", help="Certificate chain for --tls-listen, PEM; loaded again when it changes.")
    add("--tls-key", metavar="FILE", help="Private key for --tls-listen, PEM.")
    add("--tls-client-ca", metavar="FILE", help="Authority of client certificates, PEM.")
    ops = "Address of /metrics, /healthz and /readyz (default 127.0.0.1 and a free port)."
    add("--ops", type=host_and_port, default=("127.0.0.1", 0), metavar="HOST:PORT", help=ops)
    connections, frames = Limits.connections_max, Limits.frame_bytes_max
    add("--connections-max", type=int, default=connections, metavar="N", help="Maximum number of open connections.")
    add("--frame-bytes-max", type=int, default=frames, metavar="BYTES", help="Maximum size of a call.")
    add("--ready-fd", type=int, metavar="N", help="File descriptor that gets one JSON line once the proxy serves.")


def _add_stores(add: Callable[..., Any]) -> None:
    engine = "The only broker group, by the addresses of its brokers (default: those of the configuration)."
    add("--engine", type=engine_addresses, metavar="HOST:PORT|unix:PATH[,…]", help=engine)
    add("--cluster-key", required=True, metavar="FILE", help="Secret shared with the engines.")
    add("--ops-key", metavar="FILE",
        help="Key by which operators drain this proxy and close its connections, from `penstock proxy key` (default: "
        "the cluster key, which every proxy has).")  # fmt: skip
    add("--secrets-key", metavar="FILE", help=ROOT_KEYS_HELP)
    store = "Configuration store: file:///dir or zookeeper://host,host/chroot."
    add("--config", required=True, metavar="URL", help=store)
    age = "Refuse credentials while the configuration is older than this, for lack of contact to its store (0: never)."
    add("--config-age-max-s", type=float, default=0.0, metavar="SECONDS", help=age)
    add("--snapshot", metavar="FILE", help="Copy of the last configuration, for a start without the store.")


def faults(options: argparse.Namespace) -> list[str]:
    """Every violated rule at once."""
    found = limits(options).faults()
    if options.tls_listen and not (options.tls_cert and options.tls_key):
        found.append("--tls-listen needs --tls-cert and --tls-key")
    for name in ("tls_cert", "tls_client_ca"):
        path = getattr(options, name)
        if path and not Path(path).is_file():
            found.append(f"--{name.replace('_', '-')}: no such file: {path}")
    secrets = {"--cluster-key": options.cluster_key, "--ops-key": options.ops_key, "--tls-key": options.tls_key}
    return found + secret_faults(secrets)


def limits(options: argparse.Namespace) -> Limits:
    return Limits(connections_max=options.connections_max, frame_bytes_max=options.frame_bytes_max)
