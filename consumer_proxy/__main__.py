"""The consumer proxy's process: `python -m consumer_proxy --listen HOST:PORT --engine HOST:PORT …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import sys
from functools import partial
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
from common.net import listen
from common.net.certificate import CertificateWatch
from common.net.places_metrics import PlacesMetrics
from common.operator_proof import read_proxy_key
from common.ops import announce_ready, settle, setup_logging, start_ops
from common.ops.build_info import installed_version
from common.ops.delivery_pages import delivery_pages
from common.ops.drain_pages import proxy_pages
from common.ops.ending import end
from common.ops.stop import catch_stop
from common.root_key_watch import RootKeyWatch
from common.tracing.options import traces_of
from consumer_proxy.options import limits, parse
from consumer_proxy.proxy import ConsumerProxy
from consumer_proxy.sources.base import Source
from consumer_proxy.sources.engine import EngineSource
from consumer_proxy.sources.group_link import GroupLink, OnLinkChange
from consumer_proxy.sources.groups import GroupsSource
from engine.client.router import Place, link_to

log = logging.getLogger("penstock.consumer_proxy")


def listeners(options: argparse.Namespace, watch: CertificateWatch) -> list[tuple[Any, Any]]:
    """Bind the sockets; connections are accepted once the proxy serves them."""
    found: list[tuple[Any, Any]] = [(listen(*options.listen), None)]
    if options.tls_listen:
        found.append((listen(*options.tls_listen), watch.certificate))
    return found


def make_source(options: argparse.Namespace, key: bytes, view: ConfigView, records: EngineRecords) -> Source:
    """The engine of --engine, or the broker groups of the configuration, now and after each change."""
    window = limits(options).output_bytes_max
    if options.engine:
        rpc = link_to(options.engine, key, role="consumer_proxy", admits=partial(records.admits, None))
        rpc.share_window(window, 1)
        return EngineSource(rpc)

    def connect(name: str, number: int, address: Place, key: bytes, on_change: OnLinkChange) -> GroupLink:
        return GroupLink(name, number, address, key, on_change, partial(records.admits, name))

    source = GroupsSource(key, connect, window)

    def follow() -> None:
        source.follow([(group.name, group.place) for group in view.broker_groups()], view.placed_topics)

    follow()
    view.on_change(follow)
    return source


def run(options: argparse.Namespace) -> None:
    stop = catch_stop()
    watch = CertificateWatch(options)
    sockets = listeners(options, watch)
    host, port = options.listen[0], sockets[0][0].getsockname()[1]
    store = open_store(options.config, is_proxy=True)
    process = process_name("consumer_proxy", host, port)
    view = ConfigView(store, options.snapshot, process=process, age_s_max=options.config_age_max_s)
    roots = RootKeyWatch(options.secrets_key, view).start()
    records = EngineRecords(store, SystemClock())
    key = Path(options.cluster_key).read_bytes()
    source = make_source(options, key, view, records)
    proxy = ConsumerProxy(sockets, view, source, limits(options), key, records=records)
    registry = CollectorRegistry()
    registry.register(proxy.metrics)
    registry.register(ConfigMetrics(lambda: view))
    registry.register(watch)
    registry.register(roots)
    registry.register(proxy.key_uses)
    registry.register(PlacesMetrics(proxy.server.places))
    if isinstance(source, GroupsSource):
        registry.register(BreakerMetrics(lambda: [(link.name, link.breaker) for link in source.links]))
    traces = traces_of(options, process, registry, proxy.trace)
    operators = read_proxy_key(options.ops_key, key)
    pages = {
        **proxy_pages(proxy.connections(), proxy.drain_switch, operators, process, SystemClock()),
        **delivery_pages(proxy.deliveries_of),
    }
    ops = start_ops(
        options.ops[0], options.ops[1], registry, lambda: proxy.health() | watch.health() | roots.health(), pages
    )
    view.own_report.tell_pages(ops.port)
    settle(proxy.health, stop.asked)
    gc.collect()
    gc.freeze()  # objects of start-up are never garbage; a full collection would visit them all
    ports = proxy.server.ports
    facts = {"host": host, "port": port, "ops_port": ops.port}
    announce_ready(options.ready_fd, facts | ({"tls_port": ports[1]} if len(ports) > 1 else {}))
    log.info("listen=%s:%d version=%s: serving", host, ports[0], installed_version())
    stop.wait()
    proxy.stop()
    traces.close()
    view.close()
    store.close()
    ops.stop()


def main() -> None:
    options = parse(sys.argv[1:])
    keep_freed_memory()
    setup_logging("consumer_proxy")
    try:
        run(options)
    except (OSError, ValueError, PenstockError) as error:
        end("consumer-proxy", error)


if __name__ == "__main__":
    main()
