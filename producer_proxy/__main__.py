"""The producer proxy's process: `python -m producer_proxy --listen HOST:PORT --engine HOST:PORT …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from common.breaker_metrics import BreakerMetrics
from common.clock import SystemClock
from common.config import ConfigView, open_store
from common.config.applying import process_name
from common.config.engine_records import EngineRecords
from common.config.health import ConfigMetrics
from common.errors import PenstockError
from common.freed_memory import keep_freed_memory
from common.net import Limits, listen
from common.net.certificate import CertificateWatch
from common.net.places_metrics import PlacesMetrics
from common.operator_proof import ProxyKey, read_proxy_key
from common.ops import announce_ready, settle, setup_logging, start_ops
from common.ops.build_info import installed_version
from common.ops.connection_pages import MorePages
from common.ops.drain_pages import proxy_pages
from common.ops.ending import end
from common.ops.stop import catch_stop
from common.ops.topic_figures import TOPIC_FIGURES_PATH
from common.root_key_watch import RootKeyWatch
from common.secret_file import secret_faults
from common.tracing.options import traces_of
from engine.client.brokers import Brokers
from producer_proxy.buffer.metrics import BufferMetrics
from producer_proxy.buffer.options import make_buffering
from producer_proxy.journal.metrics import JournalMetrics
from producer_proxy.journal.options import make_journaling
from producer_proxy.metrics import SendMetrics
from producer_proxy.options import parse
from producer_proxy.proxy import ProducerProxy
from producer_proxy.targets.kafka_homes import KafkaHomes
from producer_proxy.topic_figures import topic_figures_page

log = logging.getLogger("penstock.producer_proxy")


def listeners(options: argparse.Namespace, watch: CertificateWatch) -> list:
    found: list = [(listen(*options.listen), None)]
    if options.tls_listen:
        found.append((listen(*options.tls_listen), watch.certificate))
    return found


def make_registry(proxy: ProducerProxy, others: Iterable[Any]) -> CollectorRegistry:
    """The metrics of the proxy's parts and of `others`."""
    registry, brokers = CollectorRegistry(), proxy.brokers
    for each in (*others, proxy.key_uses, PlacesMetrics(proxy.server.places)):
        registry.register(each)
    registry.register(SendMetrics(proxy.server, proxy.service, brokers, proxy.front, proxy.admission, proxy.figures))
    registry.register(BreakerMetrics(lambda: [(broker.name, broker.breaker) for broker in brokers.listed]))
    return registry


def operator_pages(proxy: ProducerProxy, key: ProxyKey, process: str) -> MorePages:
    """The pages of the operator's port beside metrics and health."""
    own = proxy_pages(proxy.connections(), proxy.drain_switch, key, process, SystemClock())
    return {**own, **proxy.outcomes.pages(), TOPIC_FIGURES_PATH: topic_figures_page(proxy.figures)}


def checked_limits(options: argparse.Namespace) -> Limits:
    """The limits of connections. Raises ValueError: they, or the files of secrets, cannot be used."""
    limits = Limits(connections_max=options.connections_max, frame_bytes_max=options.frame_bytes_max)
    if faults := limits.faults():
        raise ValueError("; ".join(faults))
    secrets = {
        "--cluster-key": options.cluster_key, "--ops-key": options.ops_key, "--tls-key": options.tls_key,
        "--buffer-redis-password-file": options.buffer_redis_password_file,
    }  # fmt: skip
    if faults := secret_faults(secrets):
        raise ValueError("; ".join(faults))
    return limits


def run(options: argparse.Namespace) -> None:
    stop = catch_stop()
    limits = checked_limits(options)
    key = Path(options.cluster_key).read_bytes()
    store = open_store(options.config, is_proxy=True)
    watch = CertificateWatch(options)
    sockets = listeners(options, watch)
    process = process_name("producer_proxy", options.listen[0], sockets[0][0].getsockname()[1])
    view = ConfigView(store, options.snapshot, process=process, age_s_max=options.config_age_max_s)
    roots = RootKeyWatch(options.secrets_key, view).start()
    brokers = Brokers(key, role="producer_proxy", records=EngineRecords(store, SystemClock()))
    if options.engine:
        brokers.use_one(options.engine)
    buffering, journaling = make_buffering(options, store), make_journaling(options)
    homes = KafkaHomes(options.kafka_bridge, key)
    proxy = ProducerProxy(
        sockets, view, brokers, limits, buffering, None, homes, store, journaling, options.topic_figures
    )
    registry = make_registry(
        proxy, (ConfigMetrics(lambda: view), BufferMetrics(buffering), JournalMetrics(journaling), watch, roots)
    )
    traces = traces_of(options, process, registry, proxy.trace)
    pages = operator_pages(proxy, read_proxy_key(options.ops_key, key), process)
    ops = start_ops(
        options.ops[0], options.ops[1], registry, lambda: proxy.health() | watch.health() | roots.health(), pages
    )
    view.own_report.tell_pages(ops.port)
    settle(proxy.health, stop.asked)
    gc.collect()
    gc.freeze()  # objects of start-up are never garbage; a full collection would visit them all
    ports = proxy.server.ports
    facts = {"host": options.listen[0], "port": ports[0], "ops_port": ops.port}
    announce_ready(options.ready_fd, facts | ({"tls_port": ports[1]} if len(ports) > 1 else {}))
    log.info("listen=%s:%d version=%s: serving", options.listen[0], ports[0], installed_version())
    stop.wait()
    proxy.stop()
    traces.close()
    view.close()
    store.close()
    ops.stop()


def main() -> None:
    options = parse(sys.argv[1:])
    keep_freed_memory()
    setup_logging("producer_proxy")
    try:
        run(options)
    except (OSError, ValueError, PenstockError) as error:
        end("producer-proxy", error)


if __name__ == "__main__":
    main()
