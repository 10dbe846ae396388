"""The producer proxy's process: `python -m producer_proxy --listen HOST:PORT --engine HOST:PORT …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import sys

from prometheus_client import CollectorRegistry

from common.address import engine_address, host_and_port
from common.breaker_metrics import BreakerMetrics
from common.config import ConfigView, open_store
from common.net import Limits, listen
from common.net.tls import server_context
from common.ops import announce_ready, settle, setup_logging, start_ops
from common.ops.stop import catch_stop
from engine.client.brokers import Brokers
from producer_proxy.buffer.errors import BufferError_
from producer_proxy.buffer.metrics import BufferMetrics
from producer_proxy.buffer.options import make_buffering, options_of_buffer
from producer_proxy.metrics import SendMetrics
from producer_proxy.proxy import ProducerProxy


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="penstock producer-proxy", description="Serve `send`, in front of an engine.")
    parser.add_argument(
        "--listen",
        type=host_and_port,
        required=True,
        metavar="HOST:PORT",
        help="for applications; port 0 takes a free one",
    )
    parser.add_argument("--tls-listen", type=host_and_port, metavar="HOST:PORT", help="the same with TLS")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM chain for --tls-listen")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM private key for --tls-listen")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="PEM authority of the certificates that clients may show"
    )
    parser.add_argument(
        "--ops", type=host_and_port, default=("127.0.0.1", 0), metavar="HOST:PORT", help="/metrics /healthz /readyz"
    )
    parser.add_argument(
        "--engine",
        type=engine_address,
        metavar="HOST:PORT|unix:PATH",
        help="the only broker; unset: the configuration's broker groups",
    )
    parser.add_argument(
        "--cluster-key", required=True, metavar="FILE", help="what proves to the engine that we belong to it"
    )
    parser.add_argument("--config", required=True, metavar="URL", help="file:///dir or zookeeper://host,host/chroot")
    parser.add_argument(
        "--snapshot", metavar="FILE", help="where the last configuration is kept for a start without the store"
    )
    parser.add_argument("--connections-max", type=int, default=Limits.connections_max)
    parser.add_argument("--frame-bytes-max", type=int, default=Limits.frame_bytes_max)
    options_of_buffer(parser)
    parser.add_argument("--ready-fd", type=int, help="a JSON line is written here once the proxy serves")
    options = parser.parse_args(arguments)
    if options.tls_listen and not (options.tls_cert and options.tls_key):
        parser.error("--tls-listen needs --tls-cert and --tls-key")
    return options


def listeners(options) -> list:
    found: list = [(listen(*options.listen), None)]
    if options.tls_listen:
        found.append(
            (listen(*options.tls_listen), server_context(options.tls_cert, options.tls_key, options.tls_client_ca))
        )
    return found


def run(options) -> None:
    stop = catch_stop()
    limits = Limits(connections_max=options.connections_max, frame_bytes_max=options.frame_bytes_max)
    if faults := limits.faults():
        raise ValueError("; ".join(faults))
    with open(options.cluster_key, "rb") as file:
        key = file.read()
    store = open_store(options.config)
    view = ConfigView(store, options.snapshot, process=f"producer_proxy@{options.listen[0]}:{options.listen[1]}")
    brokers = Brokers(key, role="producer_proxy")
    if options.engine:
        brokers.use_one(options.engine)
    buffering = make_buffering(options, store)
    proxy = ProducerProxy(listeners(options), view, brokers, limits, buffering)
    registry = CollectorRegistry()
    registry.register(BufferMetrics(buffering))
    registry.register(proxy.key_uses)
    registry.register(SendMetrics(proxy.server, proxy.service, brokers, proxy.front, proxy.gate))
    registry.register(BreakerMetrics(lambda: [(broker.name, broker.breaker) for broker in brokers.listed]))
    ops = start_ops(options.ops[0], options.ops[1], registry, proxy.health)
    settle(proxy.health, stop.asked)
    gc.collect()
    gc.freeze()  # what start-up made is never garbage; without it each full collection walks all of it
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
