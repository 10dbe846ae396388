"""The engine's process: `python -m engine --data DIR --listen HOST:PORT --cluster-key FILE …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gevent.event import Event
from prometheus_client import CollectorRegistry

from common.config.applying import process_name
from common.config.health import ConfigMetrics, config_health
from common.ops import announce_ready, setup_logging, start_ops
from common.ops.stop import catch_stop
from engine.env.background import PacedThread
from engine.env.real import RealEnv
from engine.errors import CheckpointError, EngineError
from engine.log import Log, open_log
from engine.log.upkeep.scrub import Scrub
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.handshake import LinkKeys
from engine.options import MIB, log_config, parse
from engine.server.loop import NodeLoop
from engine.server.metrics import EngineMetrics
from engine.server.policy.config_follower import ConfigFollower
from engine.server.policy.creation_limits import ConfiguredCreationLimits
from engine.server.policy.family_topics import ConfiguredFamilyTopics
from engine.server.policy.group_policies import ConfiguredPolicies
from engine.server.policy.position_report import LogPositionReport
from engine.server.policy.queue_ownership import ConfiguredQueueOwnership
from engine.server.policy.topic_retention import ConfiguredRetention
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")
DRAIN_S = 2.0
SWITCH_S = 0.0002
"""Longest time for which another thread keeps the GIL while the loop waits for it.

Python's default of 5 ms is the time of many requests.
"""


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or the verb `stop`."""
    stop = catch_stop()
    env = RealEnv()
    follower = ConfigFollower(options.config, Path(options.data) / "config.snapshot")
    retention = ConfiguredRetention(follower, is_configured=bool(options.config))
    loop = NodeLoop(env.clock)
    policy = retention if options.config else None
    store = open_log(env, options.data, log_config(options), retention_policy=policy, notify=loop.on_fetched)
    try:
        serve(options, env, store, loop, follower, stop.asked)
    finally:
        store.close()
        loop.close()


def serve(
    options: argparse.Namespace, env: RealEnv, store: Log, loop: NodeLoop, follower: ConfigFollower, asked: Event
) -> None:
    """Serve an open log until `asked` is set, then finish the accepted work."""
    admin_key = Path(options.admin_key).read_bytes() if options.admin_key else b""
    keys = LinkKeys(Path(options.cluster_key).read_bytes(), admin_key)
    config = NodeConfig(keys, options.broker_group, 24 * options.expire_days, options.progress_ms)
    server: LinkServer
    node = Node(
        store, config, host_of(env, loop, asked, lambda: server.facts()),
        policies=ConfiguredPolicies(follower, is_configured=bool(options.config)),
        ownership=ConfiguredQueueOwnership(follower, options.broker_group, is_configured=bool(options.config)),
        limits=ConfiguredCreationLimits(follower), families=ConfiguredFamilyTopics(follower),
    )  # fmt: skip
    host, port = options.listen
    server = LinkServer(node, host, port, socket_file=options.socket_file)
    scrub = Scrub(env, f"{options.data}/log", store.log_id, options.scrub_mib_s * MIB, store.look_up.maker)
    paced = [PacedThread("making look-up files", store.look_up.maker.steps())]
    if options.scrub_mib_s:
        paced.append(PacedThread("scrub", scrub.steps()))
    registry = CollectorRegistry()
    registry.register(EngineMetrics(node, server, scrub.counts))
    registry.register(ConfigMetrics(lambda: follower.view))

    def health() -> dict[str, bool | str]:
        followed = {"configuration": config_health(follower.view)} if options.config else {}
        disk = store.retention.health
        return {"log": True, "disk": disk, "accepting": not asked.is_set() or "stopping", **followed}

    ops = start_ops(options.ops[0], options.ops[1], registry, health)
    follower.start(process_name("engine", host, server.port))
    report = LogPositionReport(follower, options.broker_group, store)
    loop.start(node)
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # objects made at start-up live for ever; each full collection would visit all of them
    announce_ready(options.ready_fd, {"host": host, "port": server.port, "ops_port": ops.port})
    log.info("data=%s port=%d: serving from position %d", options.data, server.port, store.end_position)
    asked.wait()
    for each in paced:
        each.stop()
    finish(node, server, loop)
    report.stop()
    follower.close()
    ops.stop()


def host_of(env: RealEnv, loop: NodeLoop, asked: Event, facts: Callable[[], dict[str, Any]]) -> NodeHost:
    """This process as the node sees it. `facts` is called late: the server is made from the node."""
    return NodeHost(
        clock=env.clock, random_bytes=env.random_bytes, random_fraction=env.random_fraction, in_loop=loop.in_loop,
        wake_at=loop.wake_at, die=env.die, stop=asked.set, facts=facts,
    )  # fmt: skip


def finish(node: Node, server: LinkServer, loop: NodeLoop) -> None:
    """Answer the accepted requests, write progress, bring the view up to date."""
    store = node.store
    server.stop_accepting()
    settled = Event()
    store.when_durable(store.end_position, settled.set)
    settled.wait(DRAIN_S)
    server.drain(DRAIN_S)
    loop.stop()
    server.close()
    node.close()
    try:
        store.checkpoint()
    except CheckpointError as error:
        log.error("%s", error)
    log.info("stopped at position %d", store.end_position)


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    setup_logging("engine")
    try:
        run(options)
    except (OSError, EngineError) as error:
        sys.exit(f"penstock engine: {error}")


if __name__ == "__main__":
    main()
