"""The producer proxy's process: `python -m producer_proxy --listen HOST:PORT --engine HOST:PORT …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from common.address import engine_address, engine_addresses, host_and_port
from common.breaker_metrics import BreakerMetrics
from common.clock import SystemClock
from common.config import ConfigView, open_store
from common.config.applying import process_name
from common.config.engine_records import EngineRecords
from common.config.health import ConfigMetrics
from common.net import Limits, listen
from common.net.certificate import CertificateWatch
from common.ops import announce_ready, settle, setup_logging, start_ops
from common.ops.stop import catch_stop
from common.process_options import ProcessParser
from common.secret_file import secret_faults
from engine.client.brokers import Brokers
from producer_proxy.buffer.errors import BufferError_
from producer_proxy.buffer.metrics import BufferMetrics
from producer_proxy.buffer.options import make_buffering, options_of_buffer
from producer_proxy.journal.metrics import JournalMetrics
from producer_proxy.journal.options import make_journaling, options_of_journal
from producer_proxy.metrics import SendMetrics
from producer_proxy.proxy import ProducerProxy
from producer_proxy.targets.kafka_homes import KafkaHomes


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ProcessParser(prog="penstock producer-proxy", description="Serve `send` in front of an engine.")
    _add_addresses(parser)
    _add_settings(parser)
    options_of_buffer(parser)
    options_of_journal(parser)
    options = parser.parse_args(arguments)
    if options.tls_listen and not (options.tls_cert and options.tls_key):
        parser.error("--tls-listen: set --tls-cert and --tls-key too")
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
    add("--config", required=True, metavar="URL",
        help="Configuration store: file:///dir or zookeeper://host,host/chroot.")  # fmt: skip
    add("--snapshot", metavar="FILE",
        help="File for the last configuration, for a start without the store; unset: none.")  # fmt: skip
    add("--config-age-max-s", type=float, default=0.0, metavar="SECONDS",
        help="Refuse credentials while the configuration is older than this, for lack of contact to its store "
        "(default 0: never).")  # fmt: skip
    add("--connections-max", type=int, default=Limits.connections_max, metavar="COUNT",
        help="Maximum number of client connections (default %(default)s).")  # fmt: skip
    add("--frame-bytes-max", type=int, default=Limits.frame_bytes_max, metavar="BYTES",
        help="Maximum size of one call (default %(default)s).")  # fmt: skip
    add("--ready-fd", type=int, metavar="FD", help="File descriptor for one JSON line, written once the proxy serves.")


def listeners(options: argparse.Namespace, watch: CertificateWatch) -> list:
    found: list = [(listen(*options.listen), None)]
    if options.tls_listen:
        found.append((listen(*options.tls_listen), watch.certificate))
    return found


def run(options: argparse.Namespace) -> None:
    stop = catch_stop()
    limits = Limits(connections_max=options.connections_max, frame_bytes_max=options.frame_bytes_max)
    if faults := limits.faults():
        raise ValueError("; ".join(faults))
    secrets = {
        "--cluster-key": options.cluster_key, "--tls-key": options.tls_key,
        "--buffer-redis-password-file": options.buffer_redis_password_file,
    }  # fmt: skip
    if faults := secret_faults(secrets):
        raise ValueError("; ".join(faults))
    key = Path(options.cluster_key).read_bytes()
    store = open_store(options.config)
    watch = CertificateWatch(options)
    sockets = listeners(options, watch)
    process = process_name("producer_proxy", options.listen[0], sockets[0][0].getsockname()[1])
    view = ConfigView(store, options.snapshot, process=process, age_s_max=options.config_age_max_s)
    brokers = Brokers(key, role="producer_proxy", records=EngineRecords(store, SystemClock()))
    if options.engine:
        brokers.use_one(options.engine)
    buffering = make_buffering(options, store)
    journaling = make_journaling(options)
    homes = KafkaHomes(options.kafka_bridge, key)
    proxy = ProducerProxy(sockets, view, brokers, limits, buffering, kafka=homes, journaling=journaling, store=store)
    registry = CollectorRegistry()
    registry.register(ConfigMetrics(lambda: view))
    registry.register(watch)
    registry.register(BufferMetrics(buffering))
    registry.register(JournalMetrics(journaling))
    registry.register(proxy.key_uses)
    registry.register(SendMetrics(proxy.server, proxy.service, brokers, proxy.front, proxy.admission))
    registry.register(BreakerMetrics(lambda: [(broker.name, broker.breaker) for broker in brokers.listed]))
    ops = start_ops(options.ops[0], options.ops[1], registry, lambda: {**proxy.health(), **watch.health()})
    view.own_report.tell_pages(ops.port)
    settle(proxy.health, stop.asked)
    gc.collect()
    gc.freeze()  # objects of start-up are never garbage; a full collection would visit them all
    ports = proxy.server.ports
    facts = {"host": options.listen[0], "port": ports[0], "ops_port": ops.port}
    announce_ready(options.ready_fd, facts | ({"tls_port": ports[1]} if len(ports) > 1 else {}))
    stop.wait()
    proxy.stop()
    view.close()
    store.close()
    ops.stop()


def main() -> None:
    options = parse(sys.argv[1:])
    setup_logging("producer_proxy")
    try:
        run(options)
    except (OSError, ValueError, BufferError_) as error:
        sys.exit(f"penstock producer-proxy: {error}")


if __name__ == "__main__":
    main()
