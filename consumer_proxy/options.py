"""The command line of the consumer proxy."""

import argparse
from pathlib import Path

from common.address import engine_address, host_and_port
from common.net import Limits


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; says all that is wrong with them and exits with 2."""
    parser = argparse.ArgumentParser(prog="penstock consumer-proxy", description="Serve `pull`, in front of an engine.")
    add = parser.add_argument
    add(
        "--listen",
        type=host_and_port,
        required=True,
        metavar="HOST:PORT",
        help="for applications; port 0 takes a free one",
    )
    add("--tls-listen", type=host_and_port, metavar="HOST:PORT", help="the same with TLS")
    add("--tls-cert", metavar="FILE", help="PEM chain for --tls-listen")
    add("--tls-key", metavar="FILE", help="PEM private key for --tls-listen")
    add("--tls-client-ca", metavar="FILE", help="PEM authority of the certificates that clients may show")
    add("--ops", type=host_and_port, default=("127.0.0.1", 0), metavar="HOST:PORT", help="/metrics /healthz /readyz")
    add(
        "--engine",
        type=engine_address,
        metavar="HOST:PORT|unix:PATH",
        help="the only broker; unset: the configuration's broker groups",
    )
    add("--cluster-key", required=True, metavar="FILE", help="what proves to the engine that we belong to it")
    add("--config", required=True, metavar="URL", help="file:///dir or zookeeper://host,host/chroot")
    add("--snapshot", metavar="FILE", help="where the last configuration is kept for a start without the store")
    add("--connections-max", type=int, default=Limits.connections_max, metavar="N")
    add("--frame-bytes-max", type=int, default=Limits.frame_bytes_max, metavar="BYTES", help="of a call")
    add("--ready-fd", type=int, metavar="N", help="a JSON line is written here once the proxy serves")
    options = parser.parse_args(arguments)
    if found := faults(options):
        parser.error("; ".join(found))
    return options


def faults(options: argparse.Namespace) -> list[str]:
    """Every violated rule at once."""
    found = limits(options).faults()
    if options.tls_listen and not (options.tls_cert and options.tls_key):
        found.append("--tls-listen needs --tls-cert and --tls-key")
    for name in ("cluster_key", "tls_cert", "tls_key", "tls_client_ca"):
        path = getattr(options, name)
        if path and not Path(path).is_file():
            found.append(f"--{name.replace('_', '-')}: there is no file {path}")
    return found


def limits(options: argparse.Namespace) -> Limits:
    return Limits(connections_max=options.connections_max, frame_bytes_max=options.frame_bytes_max)
