"""The Kafka bridge's process: `python -m kafka_bridge --config URL --cluster-key FILE --listen ADDRESS …`.

gevent serves the operator's pages only, and patches nothing here: links and clusters have threads of the system, and
the Kafka clients run as their authors run them.
"""

import argparse
import logging
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from common.config import ConfigView, open_store
from common.config.applying import process_name
from common.config.health import ConfigMetrics, config_health
from common.errors import PenstockError
from common.ops import announce_ready, setup_logging, start_ops
from common.ops.stop import catch_stop
from kafka_bridge.clusters import Clusters
from kafka_bridge.metrics import BridgeMetrics
from kafka_bridge.options import parse
from kafka_bridge.server import BridgeServer

log = logging.getLogger("penstock.kafka_bridge")
CLOSE_S = 3.0
"""Time for what is in flight at a stop: the supervisor kills a process after four seconds."""


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop = catch_stop()
    store = open_store(options.config)
    key = Path(options.cluster_key).read_bytes()
    view = ConfigView(store, options.snapshot, process=process_name("kafka_bridge", *options.ops))
    clusters = Clusters(view)
    server = BridgeServer(options.listen, key, clusters)
    registry = CollectorRegistry()
    registry.register(ConfigMetrics(lambda: view))
    registry.register(BridgeMetrics(server, clusters))
    ops = start_ops(
        options.ops[0], options.ops[1], registry, lambda: {"configuration": config_health(view), **clusters.health()}
    )
    host = options.ops[0] if options.listen.host.startswith("/") else options.listen.host
    announce_ready(options.ready_fd, {"host": host, "port": server.port, "ops_port": ops.port})
    log.info("listen=%s: serving", options.listen)
    stop.wait()
    server.stop_accepting()
    clusters.close(CLOSE_S)
    server.stop()
    view.close()
    store.close()
    ops.stop()
    log.info("listen=%s: stopped", options.listen)


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    setup_logging("kafka_bridge")
    try:
        run(options)
    except (OSError, PenstockError) as error:
        sys.exit(f"penstock kafka-bridge: {error}")


if __name__ == "__main__":
    main()
