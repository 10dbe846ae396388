# cython: annotation_typing=False
"""The turns of a broker's loop: what they wrote is confirmed, let out and shipped. Design: docs/design/0030-replication.md.

So is what each STORED changes. Under load a master does both for every few messages, so this file is the source of the
native form, too.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from common.limited_log import LimitedLog
from engine.broker.life import BrokerLife
from engine.broker.standby import Standby
from engine.errors import CorruptionError, PositionGoneError
from engine.link import layout
from engine.log.write.native import Appender
from engine.ops.peer import Peer
from engine.replication.broker import GroupBroker
from engine.replication.frames import SegmentFrame, SyncFrame
from engine.replication.shipment import FRAME_BYTES, Shipment

limited = LimitedLog(logging.getLogger("penstock.engine"))

SendTail = Callable[[Peer, Appender, int, int, int, int], int]
"""See `engine.broker.native`."""


class TurnedBroker(Protocol):
    """The broker whose turns these are."""

    @property
    def life(self) -> BrokerLife | None:
        """None: it has no log yet."""

    @property
    def standby(self) -> Standby: ...

    def end(self, reason: str) -> None:
        """End the process: its disk fails, and another broker can lead."""


class BrokerTurn:
    """What one broker does in each turn, over all openings of its log.

    Args:
        slaves: links of those that follow, by name.
        serve_soon: called once all that this broker had when it began to lead is confirmed.
    Attributes:
        has_contact: whether the coordination has answered of late.
    """

    def __init__(
        self, broker: TurnedBroker, slaves: dict[str, Peer], now_ms: Callable[[], int], send_tail: SendTail,
        serve_soon: Callable[[], None],
    ) -> None:  # fmt: skip
        self._broker, self._slaves, self._now_ms = broker, slaves, now_ms
        self._send_tail, self._serve_soon = send_tail, serve_soon
        self._asked: dict[str, SyncFrame] = {}  # the last SYNC of each slave
        self._end = self._durable = 0
        self._is_told = self.has_contact = False

    def opened(self) -> None:
        """Another log is open."""
        self._end = self._durable = 0

    def run(self) -> None:
        """At the end of each turn of the loop: confirm and ship what it wrote, and ship what slaves have made room for."""
        broker = self._broker
        life = broker.life
        if life is None or life.lead_at is None:
            reads = broker.standby.reads
            if reads is not None and reads.answers:
                broker.standby.confirm()
            return
        end, durable = life.appender.end_position, life.syncer.durable_position
        if end == self._end and durable == self._durable and not self._is_told:
            return
        self._end, self._durable, self._is_told = end, durable, False
        if life.group.confirmation.advance(end, durable):
            self.confirm()
        self.ship()

    def stored(self, name: str, peer: Peer, epoch: int, end: int, synced: int) -> None:
        """Take what a slave has told; `run()` ships what it has made room for. Raises PayloadError: its link has to end."""
        life = self._broker.life
        if life is None or self._slaves.get(name) is not peer:
            return
        self._is_told = True
        if life.group.stored(name, epoch, end, synced, self._now_ms()):
            self.confirm()

    def confirm(self) -> None:
        """Let out what is confirmed. A master without slaves needs contact with the coordination for it."""
        life = self._broker.life
        if life is None or not life.group.is_master or (life.group.is_alone and not self.has_contact):
            return
        life.hold.confirm(life.group.confirmation.memory)
        if life.unconfirmed or life.not_everywhere:
            life.call_confirmed()
        if life.node is None and life.can_serve:
            self._serve_soon()

    def again(self) -> None:
        """At each tick, whether something has changed or not: heartbeats are due, and contact may have come."""
        self.confirm()
        self.ship()

    def follows(self, name: str) -> None:
        """A slave follows from now on."""
        self._asked.pop(name, None)
        self.confirm()
        self.ship()

    def ship(self) -> None:
        """Send what slaves lack, as far as their windows let it, or heartbeats. Reads the log."""
        life, now_ms = self._broker.life, self._now_ms()
        if life is None:
            return
        group, asks = life.group, bool(life.not_everywhere)
        for name, shipment in list(group.shipments.items()):
            peer = self._slaves[name]
            try:
                if asks or not self._sent_tail(life, shipment, peer, now_ms):
                    self._send_frames(group, name, peer, asks, now_ms)
            except (PositionGoneError, CorruptionError, OSError) as error:
                if group.is_in_sync(name) and not isinstance(error, PositionGoneError):
                    # The disk of this broker is at fault: to close the link would remove the slave, which has everything.
                    self._broker.end(f"the log cannot be read for broker {name}, which is in sync: {error}")
                    return
                limited.error("broker=%s: cannot be sent the log: %s", name, error, about=name)
                sentence = f"the master cannot read its log: {error}"
                peer.send_frame(layout.BYTES, layout.UNASKED, layout.UNAVAILABLE, [sentence.encode()])
                peer.close(sentence)

    def _send_frames(self, group: GroupBroker, name: str, peer: Peer, asks: bool, now_ms: int) -> None:
        """Send all that is due to one slave; with a SYNC, if an answer waits for the disks of all members."""
        for frame in group.frames(name, now_ms):
            op = layout.SEGMENT if isinstance(frame, SegmentFrame) else layout.BYTES
            peer.send_frame(op, layout.UNASKED, layout.OK, [frame.encode()])
        if asks and (asked := group.sync_frame()) != self._asked.get(name):
            self._asked[name] = asked
            peer.send_frame(layout.SYNC, layout.UNASKED, layout.OK, [asked.encode()])

    def _sent_tail(self, life: BrokerLife, shipment: Shipment, peer: Peer, now_ms: int) -> bool:
        """Send the log's end at once, if that is all that the slave lacks. Returns whether nothing is left to do."""
        appender = life.appender
        if shipment.is_idle(appender.end_position, now_ms):
            return True
        room, confirmed = min(shipment.room, FRAME_BYTES), life.group.confirmation.memory
        end = self._send_tail(peer, appender, shipment.epoch, shipment.sent, confirmed, room)
        if end:
            shipment.took(end, now_ms)
        return bool(end)
