"""The Kafka bridge's process: `python -m kafka_bridge --config URL --cluster-key FILE --listen ADDRESS …`.

gevent serves the operator's pages only, and patches nothing here: links and clusters have threads of the system, and
the Kafka clients run as their authors run them.
"""

import argparse
import gc
import logging
import resource
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from common.address import Address
from common.clock import SystemClock
from common.config import ConfigView, open_store
from common.config.applying import process_name
from common.config.engine_records import EngineRecords
from common.config.health import ConfigMetrics, config_health
from common.config.store import ConfigStore
from common.errors import PenstockError
from common.ops import announce_ready, setup_logging, start_ops
from common.ops.ending import end
from common.ops.stop import catch_stop
from engine.client.blocking import LeadingLink
from engine.link.proof import KAFKA_BRIDGE_ROLE
from kafka_bridge.clusters import Clusters
from kafka_bridge.connecting import Connections, connection_of, driver_of
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.copy_in.engine_queues import Groups
from kafka_bridge.copy_in.metrics import CopyInMetrics
from kafka_bridge.copy_out.copies import OutCopies
from kafka_bridge.copy_out.metrics import CopyOutMetrics
from kafka_bridge.copy_out.opening import CopierMaker
from kafka_bridge.dual_topics import DualTopics
from kafka_bridge.metrics import BridgeMetrics
from kafka_bridge.options import parse
from kafka_bridge.server import BridgeServer
from kafka_bridge.shared_read.copies import all_copies
from kafka_bridge.shared_read.metrics import SharedReadMetrics

log = logging.getLogger("penstock.kafka_bridge")
ONLY = "main"
"""Name of the broker group of --engine."""
CLOSE_S = 3.0
"""Time for what is in flight at a stop: the supervisor kills a process after four seconds."""


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop = catch_stop()
    allow_descriptors()
    store = open_store(options.config)
    key = Path(options.cluster_key).read_bytes()
    view = ConfigView(store, options.snapshot, process=process_name("kafka_bridge", *options.ops))
    connections = partial(connection_of, rooms=options.kafka_files)
    clusters = Clusters(view, connections=connections)
    server = BridgeServer(options.listen, key, clusters)
    tools = copy_tools(options, store, view, key, connections)
    copies = all_copies(view, tools)
    out_copies = OutCopies(view, store, CopierMaker(view, tools.groups, tools.connect, connections).make)
    dual_topics = DualTopics(view, tools)
    registry = CollectorRegistry()
    of_copies = CopyInMetrics(copies), CopyOutMetrics(out_copies), SharedReadMetrics(copies)
    for each in (ConfigMetrics(lambda: view), BridgeMetrics(server, clusters), *of_copies):
        registry.register(each)

    def health() -> dict[str, bool | str]:
        parts = (clusters, copies, out_copies, dual_topics)
        return {"configuration": config_health(view), **{k: v for each in parts for k, v in each.health().items()}}

    ops = start_ops(options.ops[0], options.ops[1], registry, health)
    view.own_report.tell_pages(ops.port)
    host = options.ops[0] if options.listen.host.startswith("/") else options.listen.host
    gc.collect()
    gc.freeze()  # objects of start-up are never garbage; a full collection would visit them all
    announce_ready(options.ready_fd, {"host": host, "port": server.port, "ops_port": ops.port})
    log.info("listen=%s: serving", options.listen)
    stop.wait()
    server.stop_accepting()
    closes = (partial(copies.close, CLOSE_S), out_copies.close, dual_topics.close)
    ends = [threading.Thread(target=each, daemon=True) for each in closes]
    for closing in ends:
        closing.start()
    clusters.close(CLOSE_S)
    for closing in ends:
        closing.join(CLOSE_S)
    server.stop()
    view.close()
    store.close()
    ops.stop()
    log.info("listen=%s: stopped", options.listen)


def allow_descriptors() -> None:
    """As many as the system lets: a configuration in a directory takes one per claimed copy."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def copy_tools(
    options: argparse.Namespace, store: ConfigStore, view: ConfigView, key: bytes, connections: Connections
) -> CopyTools:
    """The parts that copiers share: links to the engine of --engine, or to the broker groups of the configuration."""
    clock = SystemClock()
    records = EngineRecords(store, clock)

    def groups() -> Groups:
        if options.engine:
            return {ONLY: (options.engine,) if isinstance(options.engine, Address) else options.engine}
        return {each.name: each.addresses for each in view.broker_groups()}

    def connect(name: str, addresses: Sequence[tuple[str, int]]) -> LeadingLink:
        group = None if options.engine else name
        return LeadingLink(addresses, key, KAFKA_BRIDGE_ROLE, partial(records.admits, group))

    return CopyTools(store, clock, groups, connect, driver_of, connections)


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    setup_logging("kafka_bridge")
    try:
        run(options)
    except (OSError, PenstockError) as error:
        end("kafka-bridge", error)


if __name__ == "__main__":
    main()
