"""Parts of an engine's process besides its log: configuration, keys, threads. They make nodes over opened logs."""

import argparse
import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gevent.event import Event

from engine.env.background import PacedThread
from engine.env.real import RealEnv
from engine.errors import CheckpointError
from engine.log import Log, open_log
from engine.log.upkeep.scrub import Scrub, ScrubCounts
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.roles import LinkKeys
from engine.options import MIB, log_config
from engine.server.loop import NodeLoop
from engine.server.policy.config_follower import ConfigFollower
from engine.server.policy.creation_limits import ConfiguredCreationLimits
from engine.server.policy.family_topics import ConfiguredFamilyTopics
from engine.server.policy.group_policies import ConfiguredPolicies
from engine.server.policy.queue_ownership import ConfiguredQueueOwnership
from engine.server.policy.topic_retention import ConfiguredRetention
from engine.server.series_metrics import SeriesBounds
from engine.server.server import LinkServer

log = logging.getLogger("penstock.engine")
DRAIN_S = 2.0
SWITCH_S = 0.0002
"""Longest time for which another thread keeps the GIL while the loop waits for it.

Python's default of 5 ms is the time of many requests.
"""


class Composition:
    """The parts of one process.

    Args:
        asked: set when the process has to end.
    Attributes:
        follower: follows the configuration once it is started.
        scrub: counts of the scrub, over all openings of the log.
        series_bounds: groups and topics with series of their own on /metrics.
    """

    def __init__(self, options: argparse.Namespace, env: RealEnv, loop: NodeLoop, asked: Event) -> None:
        self.options, self.env, self.loop, self.asked = options, env, loop, asked
        self.follower = ConfigFollower(options.config, Path(options.data) / "config.snapshot")
        self.keys = read_keys(options)
        self.scrub = ScrubCounts()
        self.series_bounds = SeriesBounds(options.metrics_groups, options.metrics_topics)
        self._retention = ConfiguredRetention(self.follower, is_configured=bool(options.config))

    def open_log(self, *, scans_all: bool = False) -> Log:
        """Open the log of the data directory. Blocks, raises as `engine.log.open_log`."""
        options = self.options
        return open_log(
            self.env, options.data, log_config(options), notify=self.loop.on_fetched,
            retention_policy=self._retention if options.config else None, scans_all=scans_all,
        )  # fmt: skip

    def make_node(self, store: Log, facts: Callable[[], dict[str, Any]], **replicated: Any) -> Node:
        """Make a node over the log.

        Args:
            facts: called late, for the verb `status`: the server is made from the node.
            replicated: what a node of a group with replicas is given besides.
        """
        options, follower = self.options, self.follower
        is_configured = bool(options.config)
        config = NodeConfig(
            self.keys, options.broker_group, 24 * options.expire_days, options.progress_ms,
            far_bytes=options.slave_read_mib * MIB,
        )  # fmt: skip
        return Node(
            store, config, self._host(facts),
            policies=ConfiguredPolicies(follower, is_configured=is_configured),
            ownership=ConfiguredQueueOwnership(follower, options.broker_group, is_configured=is_configured),
            limits=ConfiguredCreationLimits(follower), families=ConfiguredFamilyTopics(follower), **replicated,
        )  # fmt: skip

    def start_threads(self, store: Log) -> list[PacedThread]:
        """Begin to make look-up files and to scrub. They have to stop before the log is closed."""
        pace = self.options.scrub_mib_s * MIB
        scrub = Scrub(
            self.env, f"{self.options.data}/log", store.log_id, pace, store.look_up.maker, self.scrub,
            store.segments.suspects,
        )  # fmt: skip
        threads = [PacedThread("making look-up files", store.look_up.maker.steps())]
        return [*threads, PacedThread("scrub", scrub.steps())] if pace else threads

    def _host(self, facts: Callable[[], dict[str, Any]]) -> NodeHost:
        env, loop = self.env, self.loop
        return NodeHost(
            clock=env.clock, random_bytes=env.random_bytes, random_fraction=env.random_fraction, in_loop=loop.in_loop,
            wake_at=loop.wake_at, die=env.die, stop=self.asked.set, facts=facts,
        )  # fmt: skip


def read_keys(options: argparse.Namespace) -> LinkKeys:
    """The secrets of the files. Warns of what every proxy can be as long as it is so."""
    cluster, admin, replica, controller = (
        Path(file).read_bytes() if file else b""
        for file in (options.cluster_key, options.admin_key, options.replica_key, options.controller_key)
    )
    keys = LinkKeys(cluster, admin, replica, controller, options.also_cluster_key)
    if options.broker and keys.by_cluster_key:
        advice = "use " + " and ".join(f"--{each}-key" for each in keys.by_cluster_key)
        if keys.also_cluster:
            advice = "leave out --also-cluster-key once all have their own keys"
        whose = " and ".join(f"{each}s" for each in keys.by_cluster_key)
        log.warning("the cluster key, which every proxy has, is taken for links of %s, too: %s", whose, advice)
    return keys


def settle_process() -> None:
    """Tune the interpreter once all is loaded: all that exists now lives for ever."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # each full collection would visit all of it


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
