"""The consumer proxy's process: `python -m consumer_proxy --listen HOST:PORT --engine HOST:PORT …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from common.breaker_metrics import BreakerMetrics
from common.config import ConfigView, open_store
from common.errors import PenstockError
from common.net import listen
from common.net.tls import server_context
from common.ops import announce_ready, settle, setup_logging, start_ops
from common.ops.stop import catch_stop
from consumer_proxy.options import limits, parse
from consumer_proxy.proxy import ConsumerProxy
from consumer_proxy.sources.base import Source
from consumer_proxy.sources.engine import EngineSource
from consumer_proxy.sources.groups import GroupsSource
from engine.client.rpc import RpcClient


def listeners(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    """Bind the sockets; connections are accepted once the proxy serves them."""
    found: list[tuple[Any, Any]] = [(listen(*options.listen), None)]
    if options.tls_listen:
        found.append(
            (listen(*options.tls_listen), server_context(options.tls_cert, options.tls_key, options.tls_client_ca))
        )
    return found


def make_source(options: argparse.Namespace, view: ConfigView) -> Source:
    """The engine of --engine, or the broker groups of the configuration, now and after each change."""
    key = Path(options.cluster_key).read_bytes()
    if options.engine:
        return EngineSource(RpcClient(options.engine, key, role="consumer_proxy"))
    source = GroupsSource(key)

    def follow() -> None:
        source.follow([(group.name, group.host_and_port) for group in view.broker_groups()])

    follow()
    view.on_change(follow)
    return source


def run(options: argparse.Namespace) -> None:
    stop = catch_stop()
    sockets = listeners(options)
    host, port = options.listen[0], sockets[0][0].getsockname()[1]
    store = open_store(options.config)
    view = ConfigView(store, options.snapshot, process=f"consumer_proxy@{host}:{port}")
    source = make_source(options, view)
    proxy = ConsumerProxy(sockets, view, source, limits(options))
    registry = CollectorRegistry()
    registry.register(proxy.metrics)
    registry.register(proxy.key_uses)
    if isinstance(source, GroupsSource):
        registry.register(BreakerMetrics(lambda: [(link.name, link.breaker) for link in source.links]))
    ops = start_ops(options.ops[0], options.ops[1], registry, proxy.health)
    settle(proxy.health, stop.asked)
    gc.collect()
    gc.freeze()  # objects of start-up are never garbage; a full collection would visit them all
    ports = proxy.server.ports
    facts = {"host": host, "port": port, "ops_port": ops.port}
    announce_ready(options.ready_fd, facts | ({"tls_port": ports[1]} if len(ports) > 1 else {}))
    stop.wait()
    proxy.stop()
    view.close()
    store.close()
    ops.stop()


def main() -> None:
    options = parse(sys.argv[1:])
    setup_logging("consumer_proxy")
    try:
        run(options)
    except (OSError, ValueError, PenstockError) as error:
        sys.exit(f"penstock consumer-proxy: {error}")


if __name__ == "__main__":
    main()
