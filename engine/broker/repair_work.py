"""Repairs beside the loop: damaged segments of this broker's log are fetched from another broker of its group.

Design: docs/design/0032-repair-from-a-peer.md.
"""

import logging
from collections.abc import Callable, Generator

from common.address import engine_address
from common.limited_log import LimitedLog
from engine.broker.host import RepairCounts, RepairPeer
from engine.client.dial import Keys
from engine.client.peer_pieces import PeerPieces
from engine.errors import LogError
from engine.link.errors import LinkError
from engine.log import Log
from engine.log.upkeep.peer_repair import Fetch, SegmentRepair
from engine.replication.frames import Fetch as FetchFrame

limited = LimitedLog(logging.getLogger("penstock.engine"))

IDLE_S = 0.5
"""Time between two looks for suspects."""
LOOK_S = 60.0
"""Time between two looks for missing files."""
RETRY_S = 5.0
"""Pause before another try to repair what could not be repaired."""


class RepairWork:
    """The repairs of one open log.

    Args:
        name: of this broker.
        peers: the brokers that may be asked now.
        on_stale: called, in the thread, when the log has to be opened again before all of it counts.
    """

    def __init__(
        self, store: Log, name: str, key: Keys, counts: RepairCounts, peers: Callable[[], list[RepairPeer]],
        on_stale: Callable[[], None],
    ) -> None:  # fmt: skip
        self._store, self._name, self._key, self.counts = store, name, key, counts
        self._peers, self._on_stale = peers, on_stale
        self._is_stale = False

    def steps(self) -> Generator[float, None, None]:
        """Do a small piece of work at a time and yield how many seconds to wait before the next. Never ends."""
        repairs, looked_s = self._store.repairs, LOOK_S
        while True:
            if looked_s >= LOOK_S and self._peers():
                repairs.look(self._store.retention.deleted_to())
                looked_s = 0.0
            repairs.suspects.can_be_repaired = bool(self._peers())
            before = self.counts.bytes
            for base in repairs.suspects.all():
                yield from self._ask_all(base)
            self.counts.damaged = len(repairs.suspects)
            if self.counts.bytes > before:
                looked_s = LOOK_S  # a repaired header, or a file, shows where the next one is missing
                yield 0.0
                continue
            if self._is_stale:
                self._is_stale = False
                self._on_stale()
            pause_s = RETRY_S if self.counts.damaged and self._peers() else IDLE_S
            looked_s += pause_s
            yield pause_s

    def _ask_all(self, base: int) -> Generator[float, None, None]:
        """Ask one broker after the other until the segment is sound."""
        for peer in self._peers():
            yield from self._try(base, peer)
            if base not in self._store.repairs.suspects.all():
                return

    def _try(self, base: int, peer: RepairPeer) -> Generator[float, None, None]:
        try:
            with PeerPieces(engine_address(peer.address), self._key, self._name) as pieces:
                outcome = yield from self._repair(base, peer, pieces)
        except (OSError, LinkError, LogError) as error:
            self.counts.failed += 1
            limited.warning(
                "position=%d: the segment cannot be repaired from broker %s now: %s",
                base,
                peer.name,
                error,
                about=str(base),
            )
            return
        self.counts.ranges += outcome.ranges
        self.counts.bytes += outcome.bytes
        if outcome.left:
            self.counts.failed += 1
            limited.error(
                "position=%d: %d damaged bytes of the segment stay: broker %s does not have them either",
                base, outcome.left, peer.name, about=str(base),
            )  # fmt: skip
        self._is_stale = self._is_stale or outcome.is_stale

    def _repair(self, base: int, peer: RepairPeer, pieces: PeerPieces) -> Generator[float, None, SegmentRepair]:
        steps = self._store.repairs.steps(base, peer.limit, self._fetch(peer, pieces))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                outcome: SegmentRepair = end.value
                return outcome
            yield 0.0

    def _fetch(self, peer: RepairPeer, pieces: PeerPieces) -> Fetch:
        def fetch(base: int, address: int, size: int) -> bytes:
            if all(each.epoch != peer.epoch for each in self._peers()):
                raise LinkError("the epoch has ended")
            return pieces.ask(FetchFrame(base, address, size, peer.epoch).encode())

        return fetch
