"""Filling a pull: deficit round robin over the cursors that may have something, a lease for each range_ that is taken.

Deficit round robin after Shreedhar and Varghese (1995): a cursor may give a quantum of bytes in its turn, and what it
gives beyond that (a message is never cut) it owes in its next turns. So large messages take no more than their share.
"""

import logging
from typing import TYPE_CHECKING, Any

from engine.delivery.counts import DeliveryCounts
from engine.delivery.filter_budget import FILTER_READ_MESSAGES, FilterBudget
from engine.delivery.key_order import key_number, sort_open
from engine.delivery.leases import LeaseClock
from engine.delivery.pull import Pull
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.settings import DeliverySettings
from engine.delivery.shared_filters import SharedFilters
from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.filter.native import sift
from engine.link.layout import HAS_TRAILER, PIECE
from engine.log.format import whole_records
from engine.log.types import Piece

if TYPE_CHECKING:
    from engine.delivery.group import Group

log = logging.getLogger(__name__)


class Dispatcher:
    """Takes ranges from cursors and gives them to pulls.

    Args:
        store: the log; only bounds, read and watch are used.
        dirty: cursors whose progress has to be written.

    `later`: cursors where a filter goes on when there is time again; they have left their rings.
    """

    def __init__(
        self, store, settings: DeliverySettings, lease_clock: LeaseClock, dirty: set[QueueCursor], counts: DeliveryCounts
    ) -> None:
        self._store, self._settings, self._lease_clock = store, settings, lease_clock
        self._dirty, self._counts = dirty, counts
        self.requests: Any = None  # see engine/replies/requests.py
        self.later: dict[QueueCursor, None] = {}
        self.shared = SharedFilters(settings.shared_filters_min)
        self._budget = FilterBudget(settings.filter_tests_max)

    def fill(self, pull: Pull, group: "Group", now_ms: int) -> None:
        """Give the pull what its subscription has, until it is full or nothing is left. The first message always fits."""
        ring = pull.subscription.ring
        quantum = self._settings.quantum_bytes
        while ring and pull.messages_left > 0 and pull.bytes_left > 0:
            cursor = next(iter(ring))
            cursor.credit = min(cursor.credit + quantum, quantum)
            if cursor.credit <= 0 or self._dispatch_queue(cursor, pull, group, now_ms):
                ring.move_to_end(cursor)
            else:
                del ring[cursor]
                cursor.credit = 0

    def _dispatch_queue(self, cursor: QueueCursor, pull: Pull, group: "Group", now_ms: int) -> bool:
        """Hand out of one cursor until its turn is over or the pull is full; False when the cursor has nothing left."""
        if not cursor.is_sorted and not sort_open(cursor, self._store):
            self._store.watch(cursor.topic_id, cursor.queue)
            return False
        if cursor.filter is not None:
            return self._dispatch_filtered(cursor, pull, group, now_ms)
        seen = False
        while pull.messages_left > 0 and pull.bytes_left > 0 and cursor.credit > 0:
            first, end = cursor.plan(pull.messages_left)
            if first == end and not seen:
                # Looked up only when what was seen before is used up: it costs more than the rest of a small turn.
                cursor.see(*self._store.bounds(cursor.topic_id, cursor.queue))
                seen = True
                continue
            if first == end:
                self._rest(cursor)
                return False
            pieces = self._read(cursor, first, end, min(cursor.credit, pull.bytes_left))
            if pieces and self.requests is not None:
                pieces = self._waited_for(cursor, first, pieces)
            if pieces is None:
                continue
            if not pieces:
                self._store.watch(cursor.topic_id, cursor.queue)
                return False
            size = 0
            for piece in pieces:
                size += len(piece.records)
            if size > pull.bytes_left and pull.piece_count:
                pull.bytes_left = 0
                break
            given_end = pieces[-1].first_offset + pieces[-1].count
            size = self._lease_in_order(cursor, pull, group, first, given_end, pieces, now_ms)
            pull.bytes_left -= size
            cursor.credit -= size
            self._counts.delivered_bytes += size
            if given_end < end:
                break  # the turn's bytes end here; going on would make a lease for every single message
        return True

    def _dispatch_filtered(self, cursor: QueueCursor, pull: Pull, group: "Group", now_ms: int) -> bool:
        """As _dispatch_queue(), of a group that takes a part only."""
        seen = False
        while pull.messages_left > 0 and pull.bytes_left > 0 and cursor.credit > 0:
            if not self._budget.is_left(now_ms):
                self.later[cursor] = None
                return False
            first, end = cursor.plan(FILTER_READ_MESSAGES)
            if first == end and not seen:
                cursor.see(*self._store.bounds(cursor.topic_id, cursor.queue))
                seen = True
                continue
            if first == end:
                self._rest(cursor)
                return False
            fresh = first == cursor.next_offset
            if fresh:
                begin, end = self.shared.narrow(cursor, first, end)
                self._leave_out(cursor, first, begin)
                first = begin
                self._budget.take(1, 0)
                if begin == end:
                    continue
            pieces = self._read(cursor, first, end, cursor.credit)
            if pieces and self.requests is not None:
                pieces = self._waited_for(cursor, first, pieces)
            if pieces is None:
                continue
            if not pieces:
                self._store.watch(cursor.topic_id, cursor.queue)
                return False
            cursor.credit -= sum(len(piece.records) for piece in pieces)
            for piece in pieces:
                if fresh and self.shared.learn(cursor, piece.first_offset, piece.records, 0):
                    self._budget.take(piece.count, 0)
                if not self._sift(cursor, pull, group, piece, now_ms):
                    return True
        return True

    def _sift(self, cursor: QueueCursor, pull: Pull, group: "Group", piece: Piece, now_ms: int) -> bool:
        """Lease what the filter lets through, range_ by range_, pass over what lies between; False when the pull is full."""
        at, count, stored_at_ms, records = piece
        asked, passed = pull.messages_left, 0
        decided, ranges = sift(cursor.filter, records, 0, pull.messages_left, pull.bytes_left, bool(pull.piece_count))
        done = at
        for index, messages, start, end in ranges:
            first = at + index
            self._leave_out(cursor, done, first)
            done = first + messages
            range_ = Piece(first, messages, stored_at_ms, records[start:end])
            size = self._lease_in_order(cursor, pull, group, first, done, [range_], now_ms)
            passed += messages
            pull.bytes_left -= size
            self._counts.delivered_bytes += size
        self._leave_out(cursor, done, at + decided)
        self._budget.take(decided, cursor.filter.cost)
        if decided < count and passed < asked:
            pull.bytes_left = 0  # the next one does not fit
        return decided == count

    def _leave_out(self, cursor: QueueCursor, first: int, end: int) -> None:
        if end > first:
            cursor.leave_out(first, end, self._lease_clock.next_lease())
            self._dirty.add(cursor)
            self._counts.passed_over += end - first

    def _lease_in_order(
        self, cursor: QueueCursor, pull: Pull, group: "Group", first: int, end: int, pieces: list[Piece], now_ms: int
    ) -> int:
        """Lease the pieces, or those of their messages whose turn it is; returns the leased bytes."""
        if cursor.keys is not None and first == cursor.next_offset:
            return self._lease_by_key(cursor, pull, group, pieces, now_ms)
        self._lease(cursor, pull, group, first, end, pieces, now_ms)
        return sum(len(piece.records) for piece in pieces)

    def _lease_by_key(self, cursor: QueueCursor, pull: Pull, group: "Group", pieces: list[Piece], now_ms: int) -> int:
        """Lease, of messages that were never handed out, those whose turn it is; the others wait. Returns the leased bytes."""
        assert cursor.keys is not None
        taken: list[Piece] = []  # of the range_ that is being gathered
        size = 0
        for at, _, stored_at_ms, records in pieces:
            start = end = 0
            first = offset = at
            for record in whole_records(records):
                if cursor.keys.take(offset, key_number(record)):
                    end += len(record)
                else:
                    _gather(taken, first, offset, stored_at_ms, records[start:end])
                    size += self._lease_gathered(cursor, pull, group, taken, now_ms)
                    cursor.wait(offset)
                    first, start, end = offset + 1, end + len(record), end + len(record)
                offset += 1
            _gather(taken, first, offset, stored_at_ms, records[start:end])
        self._dirty.add(cursor)
        return size + self._lease_gathered(cursor, pull, group, taken, now_ms)

    def _lease_gathered(self, cursor: QueueCursor, pull: Pull, group: "Group", taken: list[Piece], now_ms: int) -> int:
        if not taken:
            return 0
        end = taken[-1].first_offset + taken[-1].count
        self._lease(cursor, pull, group, taken[0].first_offset, end, taken, now_ms)
        size = sum(len(piece.records) for piece in taken)
        taken.clear()
        return size

    def _lease(self, cursor: QueueCursor, pull: Pull, group: "Group", first: int, end: int, pieces: list, now_ms: int) -> None:
        lease = self._lease_clock.next_lease()
        due_ms = now_ms + pull.invisible_ms
        attempt = cursor.lease(first, end, lease, due_ms)
        self._lease_clock.due(cursor, due_ms)
        self._dirty.add(cursor)
        count = end - first
        token = group.receipts.make(cursor.queue, count, cursor.topic_hash, first, lease)
        out = pull.pieces
        for at, messages, stored_at_ms, records in pieces:
            out.append(PIECE.pack(token, at, at - first, cursor.queue, messages, attempt, stored_at_ms, len(records), 0))
            out.append(records)
            if self.requests is not None and records[4] & HAS_TRAILER:
                self.requests.given(group.name, records)
        pull.piece_count += len(pieces)
        pull.messages_left -= count
        self._counts.deliveries += count
        if attempt > 1:
            self._counts.redeliveries += count

    def _rest(self, cursor: QueueCursor) -> None:
        """Nothing may be handed out: let new records wake the cursor, or the acknowledgement that makes room."""
        if cursor.next_offset >= cursor.end_seen:
            self._store.watch(cursor.topic_id, cursor.queue)
        else:
            cursor.blocked = True
        if cursor.order and cursor.in_flight:
            cursor.blocked = True  # what is out is in the way of the rest

    def _read(self, cursor: QueueCursor, first: int, end: int, bytes_max: int) -> list | None:
        """The pieces; None when damage was stepped over, so that the cursor has to be planned anew."""
        try:
            return self._store.read(cursor.topic_id, cursor.queue, first, end - first, bytes_max)
        except OffsetOutOfRangeError as out:
            cursor.see(out.first_offset, out.end_offset)
            return None if out.first_offset > first else []
        except CorruptionError as damage:
            after = damage.next_offset
            log.error(
                "topic=%s queue=%d offset=%d: cannot be delivered, going on at %s: %s",
                cursor.topic_name, cursor.queue, first, after, damage,
            )  # fmt: skip
            if after is None or after <= first:
                return []
            # The bytes are gone for everybody; a queue that stops at them would lose the messages behind them, too.
            self._pass_over(cursor, first, min(after, end))
            return None

    def _waited_for(self, cursor: QueueCursor, first: int, pieces: list) -> list | None:
        """The pieces before the first request whose time is over; None when that is the first piece, which is passed over."""
        for index, piece in enumerate(pieces):
            # A request is alone in its batch, and so in its piece.
            if piece.records[4] & HAS_TRAILER and self.requests.is_over(piece.records):
                if index:
                    return pieces[:index]
                self._pass_over(cursor, first, first + 1)
                self.requests.expired += 1
                return None
        return pieces

    def _pass_over(self, cursor: QueueCursor, first: int, end: int) -> None:
        """Count as done what nobody can be given."""
        lease = self._lease_clock.next_lease()
        cursor.lease(first, end, lease, 0)
        cursor.settle(first, end, lease, False)
        self._dirty.add(cursor)


def _gather(taken: list[Piece], first: int, end: int, stored_at_ms: int, records: bytes) -> None:
    if end > first:
        taken.append(Piece(first, end - first, stored_at_ms, records))
