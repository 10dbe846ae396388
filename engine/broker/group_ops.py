"""Operations of slaves and controllers: FOLLOW, STORED, FETCH, RECORD, REPORT and HAND_OVER.

Served whether this broker is the master or not. Design: docs/design/0030-replication.md, docs/design/0031-switch-over.md.
"""

import json
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Protocol

from common.cluster.coordination import parse_record
from common.cluster.group_record import GroupRecord
from common.cluster.reports import BrokerReport
from common.config.errors import StoreDamaged
from common.limited_log import LimitedLog
from engine.broker.piece_reads import PieceReads
from engine.errors import LogError
from engine.link import layout
from engine.link.errors import PayloadError
from engine.link.integers import U64
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.replication.broker import GroupBroker
from engine.replication.frames import Fetch, Follow, StoredFrame

limited = LimitedLog(logging.getLogger("penstock.engine"))

FETCH_BYTES_MAX = 256 << 10
FETCH_UNREAD_MAX = 16 << 20
"""Output of a link above which it is closed in place of an answer to FETCH: the shipment has 8 MiB of it at most, and a
slave asks for one piece at a time."""
REPORT_MS = 100
"""Longest time between two reports to a controller."""

Handler = Callable[[Peer, int, bytes], None]


class SlaveTurns(Protocol):
    """See `engine.broker.broker_turn`."""

    def stored(self, name: str, peer: Peer, epoch: int, end: int, synced: int) -> None:
        """Take what a slave has told. Raises PayloadError: its link has to end."""

    def follows(self, name: str) -> None:
        """A slave follows from now on."""


class ReportedBroker(Protocol):
    """The broker that these operations are asked of."""

    @property
    def group(self) -> GroupBroker | None:
        """None: it has no log yet."""

    @property
    def turns(self) -> SlaveTurns:
        """Its turns, which send slaves the log."""

    def report(self) -> BrokerReport:
        """As it is now."""

    def signs(self) -> Hashable:
        """What controllers decide by, of the report."""

    def learn(self, version: int, record: GroupRecord) -> None:
        """Adopt the record soon if it is newer."""

    def replica_identity(self, *, leads: bool = True) -> dict[str, object]:
        """Fields of HELLO about the group."""

    def hand_over(self, version: int, answer: Callable[[str], None]) -> None:
        """As the master, prepare for the record that follows this version; answers "", or why not."""


class GroupOps:
    """The operations, and the links that slaves and controllers have open.

    Args:
        now_ms: the monotonic clock.
        pieces: reads segments for FETCH.
    Attributes:
        slaves: links of those that follow, by name.
    """

    def __init__(self, broker: ReportedBroker, now_ms: Callable[[], int], pieces: PieceReads) -> None:
        self._broker, self._now_ms, self.pieces = broker, now_ms, pieces
        self.slaves: dict[str, Peer] = {}
        self._controllers: dict[Peer, None] = {}
        self._reported_ms = 0
        self._told: Hashable = None

    def handlers(self) -> dict[int, Handler]:
        """By operation."""
        return {
            layout.FOLLOW: self._follow,
            layout.STORED: self._stored,
            layout.FETCH: self._fetch,
            layout.RECORD: self._record,
            layout.REPORT: self._report,
            layout.HAND_OVER: self._hand_over,
        }

    def identity(self) -> dict[str, object]:
        """Further fields of a master's answer to HELLO."""
        return self._broker.replica_identity()

    def end_links(self) -> None:
        """Close the links of slaves: the epoch has ended in which they follow."""
        for peer in list(self.slaves.values()):
            peer.close("the epoch has ended")

    def on_closed(self, peer: Peer) -> None:
        """The link is closed: a slave that followed is lost."""
        self._controllers.pop(peer, None)
        peer.peer_state.on_stored = None
        name = peer.peer_state.name
        if self.slaves.get(name) is peer:
            del self.slaves[name]
            if self._broker.group is not None:
                self._broker.group.left(name, self._now_ms())
            self.report_changes()

    # -- slaves

    def _follow(self, peer: Peer, request_id: int, payload: bytes) -> None:
        group, name = self._led(), peer.peer_state.name
        asked = Follow.decode(payload)
        before = self.slaves.pop(name, None)
        if before is not None:
            group.left(name, self._now_ms())  # a turn ships to what follows: it must not when this FOLLOW is refused
            if before is not peer:
                before.close("another link of this broker follows")
        try:
            answer = group.follow(name, asked, self._now_ms())
        except OSError as error:
            raise RequestError(f"FOLLOW: the disk cannot read now: {error}", layout.UNAVAILABLE) from error
        self.slaves[name] = peer
        peer.peer_state.on_stored = partial(self._broker.turns.stored, name, peer)
        peer.send_frame(layout.FOLLOW, request_id, layout.OK, [answer.encode()])
        self._broker.turns.follows(name)
        self.report_changes()

    def _stored(self, peer: Peer, request_id: int, payload: bytes) -> None:
        try:
            self._broker.turns.stored(peer.peer_state.name, peer, *StoredFrame.decode(payload))
        except PayloadError as error:
            peer.close(str(error))

    def _fetch(self, peer: Peer, request_id: int, payload: bytes) -> None:
        group, asked = self._led(), Fetch.decode(payload)
        if asked.epoch not in (0, group.epoch):
            raise RequestError(_stale(asked, group), layout.STALE_EPOCH)
        try:
            path = group.raw.path_of(asked.base)
        except LogError as error:
            raise RequestError(f"FETCH: {error}", layout.UNAVAILABLE) from error

        def answer(found: bytes | OSError) -> None:
            if peer.backlog > FETCH_UNREAD_MAX:
                peer.close("it does not read its answers to FETCH")
            elif isinstance(found, OSError):
                peer.send_frame(layout.FETCH, request_id, layout.UNAVAILABLE, [f"FETCH: {found}".encode()])
            elif self._broker.group is not group or asked.epoch not in (0, group.epoch):  # the log may have been cut
                peer.send_frame(layout.FETCH, request_id, layout.STALE_EPOCH, [_stale(asked, group).encode()])
            else:
                peer.send_frame(layout.FETCH, request_id, layout.OK, [found])

        self.pieces.read(path, asked.address, min(asked.size, FETCH_BYTES_MAX), answer)

    def _led(self) -> GroupBroker:
        group = self._broker.group
        if group is None:
            raise RequestError("this broker has no log yet", layout.NOT_MASTER)
        return group

    # -- controllers

    def report_changes(self) -> None:
        """Report to the controllers if something has changed that they decide by, or REPORT_MS have passed."""
        if not self._controllers:
            return
        signs, now_ms = self._broker.signs(), self._now_ms()
        if signs == self._told and now_ms < self._reported_ms + REPORT_MS:
            return
        self._told, self._reported_ms = signs, now_ms
        payload = json.dumps(self._broker.report().to_value()).encode()
        for peer in list(self._controllers):
            peer.send_frame(layout.REPORT, layout.UNASKED, layout.OK, [payload])

    def _report(self, peer: Peer, request_id: int, payload: bytes) -> None:
        self._controllers[peer] = None
        peer.send_frame(layout.REPORT, request_id, layout.OK, [json.dumps(self._broker.report().to_value()).encode()])

    def _record(self, peer: Peer, request_id: int, payload: bytes) -> None:
        if len(payload) < U64.size:
            raise RequestError("RECORD: a version of 8 bytes, then the record")
        try:
            record = parse_record(payload[U64.size :], "RECORD")
        except StoreDamaged as error:
            raise RequestError(str(error)) from error
        self._broker.learn(U64.unpack_from(payload)[0], record)
        peer.send_frame(layout.RECORD, request_id, layout.OK, [])

    def _hand_over(self, peer: Peer, request_id: int, payload: bytes) -> None:
        if len(payload) != U64.size:
            raise RequestError("HAND_OVER: a version of 8 bytes")

        def answer(reason: str) -> None:
            code = layout.UNAVAILABLE if reason else layout.OK
            peer.send_frame(layout.HAND_OVER, request_id, code, [reason.encode()])

        self._broker.hand_over(U64.unpack(payload)[0], answer)


def _stale(asked: Fetch, group: GroupBroker) -> str:
    return f"FETCH of epoch {asked.epoch}: this broker is in epoch {group.epoch}, or has opened its log again"
