"""The controller's process: `python -m controller --config URL --controller-key FILE --name NAME …`.

gevent serves the operator's pages only, and patches nothing here: the coordination, each group and each link have
threads of the system, so that none of them waits while another one blocks.
"""

import argparse
import logging
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from common.cluster.opening import open_coordination
from common.errors import PenstockError
from common.ops import announce_ready, setup_logging, start_ops
from common.ops.ending import end
from common.ops.stop import catch_stop
from controller.controller import Controller
from controller.metrics import ControllerMetrics
from controller.options import parse

log = logging.getLogger("penstock.controller")


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop = catch_stop()
    coordination = open_coordination(options.config)
    if not options.controller_key:
        log.warning(
            "name=%s: the cluster key, which every proxy has, proves this controller: use --controller-key",
            options.name,
        )
    key = Path(options.controller_key or options.cluster_key).read_bytes()
    controller = Controller(coordination, options.name, key)
    registry = CollectorRegistry()
    registry.register(ControllerMetrics(controller, coordination))
    ops = start_ops(options.ops[0], options.ops[1], registry, controller.health)
    controller.start()
    announce_ready(options.ready_fd, {"host": options.ops[0], "port": ops.port, "ops_port": ops.port})
    log.info("name=%s: standing for election", options.name)
    stop.wait()
    controller.stop()
    ops.stop()
    log.info("name=%s: stopped", options.name)


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    setup_logging("controller")
    try:
        run(options)
    except (OSError, PenstockError) as error:
        end("controller", error)


if __name__ == "__main__":
    main()
