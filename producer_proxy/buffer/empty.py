"""Draining a disk buffer whose proxy is gone, in a process of its own. Needs no patched process: the links bring gevent's sockets along."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from common.clock import SystemClock
from common.config import ConfigView, open_store
from engine.client.append import FSYNC
from engine.client.brokers import Brokers
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.drain import Drainer
from producer_proxy.buffer.errors import BufferUnavailable
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import Store
from producer_proxy.send.topics import Topics

POLL_S = 0.05


def empty(
    directory: Path, engine, cluster_key: bytes, config_url: str, per_s: int, timeout_s: float,
    tell: Callable[[int], None],
) -> tuple[int, int]:  # fmt: skip
    """Give everything to the engine; (entries drained, entries newly on the dead-letter list). Blocks.

    Args:
        engine: its address; None: the configuration's broker groups.
        tell: called now and then with the number of entries left.
    Raises:
        BufferInUse: its proxy runs. BufferUnavailable: entries are left after `timeout_s` without progress; they stay.
    """
    store = DiskStore(directory, RoomLimits(), SystemClock().now_ms)
    buried = store.buried
    try:
        if store.room.entries:
            with _draining(store, engine, cluster_key, config_url, per_s) as drainer:
                _wait(store, drainer, timeout_s, tell)
                return drainer.drained, store.buried - buried
        return 0, 0
    finally:
        store.close()


@contextmanager
def _draining(store: Store, engine, cluster_key: bytes, config_url: str, per_s: int) -> Iterator[Drainer]:
    config = open_store(config_url)
    view = ConfigView(config)
    brokers = Brokers(cluster_key, role="producer_proxy")
    topics = Topics(view, brokers)
    brokers.on_changed = topics.known.clear
    if engine is None:
        brokers.follow([(group.name, group.host_and_port) for group in view.broker_groups()])
    else:
        brokers.use_one(engine)
    drainer = Drainer(store, topics, brokers.lanes[FSYNC].submit, per_s)
    try:
        yield drainer
    finally:
        drainer.stop()
        brokers.close()
        view.close()
        config.close()


def _wait(store: Store, drainer: Drainer, timeout_s: float, tell: Callable[[int], None]) -> None:
    left, waited_s = store.room.entries, 0.0
    while store.room.entries and waited_s < timeout_s:
        gevent.sleep(POLL_S)
        waited_s = waited_s + POLL_S if store.room.entries == left else 0.0
        left = store.room.entries
        tell(left)
    if store.room.entries:
        raise BufferUnavailable(f"{left} entries are left: {drainer.last_error or 'the engine does not answer'}")
