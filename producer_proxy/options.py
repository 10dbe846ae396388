"""The command line of the producer proxy."""

import argparse

from common.address import engine_address, engine_addresses, host_and_port
from common.config.root_keys import ROOT_KEYS_HELP
from common.net import Limits
from common.process_options import ProcessParser
from common.tracing.options import options_of_traces
from producer_proxy.buffer.options import options_of_buffer
from producer_proxy.journal.options import options_of_journal

TOPIC_FIGURES_MAX = 100_000


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ProcessParser(prog="penstock producer-proxy", description="Serve `send` in front of an engine.")
    _add_addresses(parser)
    _add_settings(parser)
    options_of_buffer(parser)
    options_of_journal(parser)
    options_of_traces(parser)
    options = parser.parse_args(arguments)
    if options.tls_listen and not (options.tls_cert and options.tls_key):
        parser.error("--tls-listen: set --tls-cert and --tls-key too")
    if not 0 <= options.topic_figures <= TOPIC_FIGURES_MAX:
        parser.error(f"--topic-figures {options.topic_figures}: use 0 to {TOPIC_FIGURES_MAX:,}")
    return options


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--listen", type=host_and_port, required=True, metavar="HOST:PORT",
        help="Address for applications; port 0 takes a free port.")  # fmt: skip
    add("--tls-listen", type=host_and_port, metavar="HOST:PORT",
        help="Address for applications over TLS; unset: no TLS.")  # fmt: skip
    add("--tls-cert", metavar="FILE", help="PEM certificate chain for --tls-listen; loaded again when it changes.")
    add("--tls-key", metavar="FILE", help="PEM private key for --tls-listen.")
    add("--tls-client-ca", metavar="FILE", help="PEM authority of client certificates; unset: none are asked for.")
    add("--ops", type=host_and_port, default=("127.0.0.1", 0), metavar="HOST:PORT",
        help="Address for /metrics, /healthz and /readyz (default: a free port on 127.0.0.1).")  # fmt: skip
    add("--kafka-bridge", type=engine_address, metavar="HOST:PORT|unix:PATH",
        help="The Kafka bridge of this machine; unset: messages of topics whose home is Kafka are UNAVAILABLE.")  # fmt: skip
    add("--engine", type=engine_addresses, metavar="HOST:PORT|unix:PATH[,…]",
        help="The only broker group, by the addresses of its brokers; unset: those of the configuration.")  # fmt: skip


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cluster-key", required=True, metavar="FILE", help="Key that authenticates this process to the engine.")
    add("--ops-key", metavar="FILE",
        help="Key by which operators drain this proxy and close its connections, from `penstock proxy key` (default: "
        "the cluster key, which every proxy has).")  # fmt: skip
    add("--secrets-key", metavar="FILE", help=ROOT_KEYS_HELP)
    add("--config", required=True, metavar="URL",
        help="Configuration store: file:///dir or zookeeper://host,host/chroot.")  # fmt: skip
    add("--snapshot", metavar="FILE",
        help="File for the last configuration, for a start without the store; unset: none.")  # fmt: skip
    add("--config-age-max-s", type=float, default=0.0, metavar="SECONDS",
        help="Refuse credentials while the configuration is older than this, for lack of contact to its store "
        "(default 0: never).")  # fmt: skip
    add("--topic-figures", type=int, default=1_000, metavar="TOPICS",
        help="Keep times and refusals of this many topics, those used last, for the console (default %(default)s; "
        "0: of none).")  # fmt: skip
    add("--connections-max", type=int, default=Limits.connections_max, metavar="COUNT",
        help="Maximum number of client connections (default %(default)s).")  # fmt: skip
    add("--frame-bytes-max", type=int, default=Limits.frame_bytes_max, metavar="BYTES",
        help="Maximum size of one call (default %(default)s).")  # fmt: skip
    add("--ready-fd", type=int, metavar="FD", help="File descriptor for one JSON line, written once the proxy serves.")
