"""The engine's process: `python -m engine --data DIR --listen HOST:PORT --cluster-key FILE …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import logging
import sys

from prometheus_client import CollectorRegistry

from common.config.applying import process_name
from common.config.health import ConfigMetrics, config_health
from common.errors import PenstockError
from common.net.places_metrics import PlacesMetrics
from common.ops import announce_ready, setup_logging, start_ops
from common.ops.build_info import installed_version
from common.ops.ending import end
from common.ops.stop import catch_stop
from engine.broker.process import BrokerProcess
from engine.composition import Composition, finish, settle_process
from engine.env.real import RealEnv
from engine.errors import EngineError, LockedError
from engine.log import Log
from engine.options import parse
from engine.server.loop import NodeLoop
from engine.server.metrics import EngineMetrics
from engine.server.policy.position_report import LogPositionReport
from engine.server.series_metrics import SeriesMetrics
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")

IN_USE = 4
"""Exit code of an engine whose directory another one uses, as in the scheme of the command line."""


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or the verb `stop`."""
    stop = catch_stop()
    env = RealEnv()
    loop = NodeLoop(env.clock)
    parts = Composition(options, env, loop, stop.asked)
    if options.broker:
        BrokerProcess(parts).run()
        loop.close()
        return
    store = parts.open_log()
    try:
        serve(parts, store)
    finally:
        store.close()
        loop.close()


def serve(parts: Composition, store: Log) -> None:
    """Serve an open log until the process has to end, then finish the accepted work."""
    options, loop, follower = parts.options, parts.loop, parts.follower
    server: LinkServer
    node = parts.make_node(store, lambda: server.facts())
    host, port = options.listen
    server = LinkServer(node, host, port, socket_file=options.socket_file)
    paced = parts.start_threads(store)
    registry = CollectorRegistry()
    registry.register(EngineMetrics(node, server, parts.scrub))
    registry.register(ConfigMetrics(lambda: follower.view))
    registry.register(PlacesMetrics(server.places))

    def health() -> dict[str, bool | str]:
        followed = {"configuration": config_health(follower.view)} if options.config else {}
        followed["connections"] = server.places.health()
        disk = store.retention.health
        return {"log": True, "disk": disk, "accepting": not parts.asked.is_set() or "stopping", **followed}

    series = SeriesMetrics(lambda: node, parts.series_bounds)
    ops = start_ops(options.ops[0], options.ops[1], registry, health, series=series)
    follower.start(process_name("engine", host, server.port), ops.port)
    report = LogPositionReport(follower, options.broker_group, store)
    loop.start(node)
    settle_process()
    announce_ready(options.ready_fd, {"host": host, "port": server.port, "ops_port": ops.port})
    version = installed_version()
    log.info(
        "data=%s port=%d version=%s: serving from position %d", options.data, server.port, version, store.end_position
    )
    parts.asked.wait()
    for each in paced:
        each.stop()
    finish(node, server, loop)
    report.stop()
    follower.close()
    ops.stop()


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    setup_logging("engine")
    try:
        run(options)
    except LockedError as error:
        print(f"penstock engine: {error}", file=sys.stderr)
        sys.exit(IN_USE)
    except (OSError, EngineError, PenstockError) as error:
        end("engine", error)


if __name__ == "__main__":
    main()
