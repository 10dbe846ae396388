"""The engine's process: `python -m engine --data DIR --listen HOST:PORT --cluster-key FILE …`."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import sys
from pathlib import Path

from gevent.event import Event
from prometheus_client import CollectorRegistry

from common.ops import announce_ready, setup_logging, start_ops
from common.ops.stop import catch_stop
from engine.delivery.delivery import Delivery, receipt_key
from engine.env.background import PacedThread
from engine.env.real import RealEnv
from engine.errors import EngineError
from engine.log import Log, open_log
from engine.log.upkeep.scrub import Scrub
from engine.options import MIB, log_config, parse
from engine.server.housekeeping import ConfiguredRetention, Housekeeping, wake_by
from engine.server.metrics import EngineMetrics
from engine.server.policy.config_follower import Following
from engine.server.policy.group_policies import ConfiguredPolicies
from engine.server.policy.queue_ownership import ConfiguredQueueOwnership
from engine.server.server import LinkServer
from engine.timers.timers import Timers

log = logging.getLogger("penstock.engine")
DRAIN_S = 2.0
SWITCH_S = 0.0002
"""For how long a thread beside the loop may keep Python's lock while the loop wants it; Python's own 5 ms are many calls' time."""


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or the verb `stop`."""
    stop = catch_stop()
    env = RealEnv()
    store = open_log(env, options.data, log_config(options))
    try:
        serve(options, env, store, stop.asked)
    finally:
        store.close()


def serve(options: argparse.Namespace, env: RealEnv, store: Log, asked: Event) -> None:
    """Serve an open log until `asked` is set, then finish what was taken."""
    following = Following(options.config, Path(options.data) / "config.snapshot")
    policies = ConfiguredPolicies(following, is_configured=bool(options.config))
    ownership = ConfiguredQueueOwnership(following, options.broker_group, is_configured=bool(options.config))
    delivery = Delivery(store, receipt_key(store, env.random_bytes), env.now_ms, policies=policies, ownership=ownership)
    host, port = options.listen
    server = LinkServer(
        store, delivery, host, port, Path(options.cluster_key).read_bytes(),
        broker_group=options.broker_group, progress_ms=options.progress_ms, stop=asked.set, socket_file=options.socket_file,
        timers=Timers(store, env.now_ms), die=env.die,
    )  # fmt: skip
    maker = store.look_up.maker
    scrub = Scrub(env, f"{options.data}/log", store.log_id, options.scrub_mib_s * MIB, maker)
    paced = [PacedThread("making files of names", maker.steps())]
    if options.scrub_mib_s:
        paced.append(PacedThread("scrub", scrub.steps()))
    registry = CollectorRegistry()
    registry.register(EngineMetrics(server, scrub.counts))
    ops = start_ops(
        options.ops[0], options.ops[1], registry, lambda: {"log": True, "accepting": not asked.is_set() or "stopping"}
    )
    following.start(f"engine@{host}:{server.port}")
    store.floors.policy = ConfiguredRetention(following, is_configured=bool(options.config))
    housekeeping = Housekeeping(store.retention)
    news = wake_by(store, server.service.on_woken)
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # what start-up made is never garbage; without it each full collection walks all of it
    announce_ready(options.ready_fd, {"host": host, "port": server.port, "ops_port": ops.port})
    log.info("data=%s port=%d: serving from position %d", options.data, server.port, store.end_position)
    asked.wait()
    housekeeping.close()
    news.close()
    for each in paced:
        each.stop()
    finish(server, store)
    following.close()
    ops.stop()


def finish(server: LinkServer, store: Log) -> None:
    """Answer what was taken, write progress, bring the view up to date."""
    server.stop_accepting()
    settled = Event()
    store.when_durable(store.end_position, settled.set)
    settled.wait(DRAIN_S)
    server.drain(DRAIN_S)
    server.close()
    store.checkpoint()
    log.info("stopped at position %d", store.end_position)


def main() -> None:
    """Parse, serve, and say in one line why it cannot."""
    options = parse(sys.argv[1:])
    setup_logging("engine")
    try:
        run(options)
    except (OSError, EngineError) as error:
        sys.exit(f"penstock engine: {error}")


if __name__ == "__main__":
    main()
