"""Drains a disk buffer whose proxy is gone, or a dead-letter list, in a separate process.

The process needs no patches: the links use gevent's sockets.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from common.clock import SystemClock
from common.config import ConfigView, open_store
from engine.client.append import Destinations
from engine.client.brokers import Brokers
from engine.client.router import Place
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.drain import Drainer
from producer_proxy.buffer.errors import BufferUnavailable
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore
from producer_proxy.targets.engine import EngineTarget
from producer_proxy.targets.engine_topics import DESTINATIONS_MAX, EngineTopics
from producer_proxy.targets.topics import Targets, Topics

POLL_S = 0.05


def empty(
    directory: Path, engine: Place | None, cluster_key: bytes, config_url: str, per_s: int, timeout_s: float,
    tell: Callable[[int], None],
) -> tuple[int, int]:  # fmt: skip
    """Drain all entries to the engine; return (drained entries, new dead-letter entries). Blocks.

    Args:
        engine: its address; None: the configuration's broker groups.
        tell: called about every 50 ms with the number of entries left.
    Raises:
        BufferInUse: its proxy runs. BufferUnavailable: entries are left after `timeout_s` without progress; they stay.
    """
    store = DiskStore(directory, RoomLimits(), SystemClock().now_ms)
    dead_before = store.dead_count
    drained = drain_all(store, engine, cluster_key, config_url, per_s, timeout_s, tell)
    return drained, store.dead_count - dead_before


def drain_all(
    store: BufferStore, engine: Place | None, cluster_key: bytes, config_url: str, per_s: int, timeout_s: float,
    tell: Callable[[int], None],
) -> int:  # fmt: skip
    """Drain a store and close it; return the number of entries that the engine took. Arguments and errors of `empty`."""
    try:
        if not store.room.entries:
            return 0
        with _draining(store, engine, cluster_key, config_url, per_s) as drainer:
            _wait(store, drainer, timeout_s, tell)
            return drainer.drained
    finally:
        store.close()


@contextmanager
def _draining(
    store: BufferStore, engine: Place | None, cluster_key: bytes, config_url: str, per_s: int
) -> Iterator[Drainer]:
    config = open_store(config_url)
    view = ConfigView(config)
    brokers = Brokers(cluster_key, role="producer_proxy")
    known = Destinations(DESTINATIONS_MAX)
    brokers.on_change(known.clear)
    target = EngineTarget(brokers, EngineTopics(view, brokers, known))
    if engine is None:
        brokers.follow([(group.name, group.place) for group in view.broker_groups()], view.placed_topics)
    else:
        brokers.use_one(engine)
    drainer = Drainer(store, Topics(view, Targets(target)), per_s)
    try:
        yield drainer
    finally:
        drainer.stop()
        target.close()
        view.close()
        config.close()


def _wait(store: BufferStore, drainer: Drainer, timeout_s: float, tell: Callable[[int], None]) -> None:
    left, waited_s = store.room.entries, 0.0
    while store.room.entries and waited_s < timeout_s:
        gevent.sleep(POLL_S)
        waited_s = waited_s + POLL_S if store.room.entries == left else 0.0
        left = store.room.entries
        tell(left)
    if store.room.entries:
        raise BufferUnavailable(f"{left} entries are left: {drainer.last_error or 'the engine does not answer'}")
