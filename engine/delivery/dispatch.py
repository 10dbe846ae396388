"""Dispatch: fills a pull by deficit round robin over the cursors that may have messages, with a lease per range.

Deficit round robin after Shreedhar and Varghese (1995): a cursor may dispatch a quantum of bytes per turn. Bytes beyond
it (a message is never cut) count against its next turns, so large messages take no more than their share.
"""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog
from engine.delivery.counts import DeliveryCounts
from engine.delivery.filter_budget import FILTER_READ_MESSAGES, FilterBudget
from engine.delivery.group_view import GroupView
from engine.delivery.key_order import key_number
from engine.delivery.key_recovery import sort_open
from engine.delivery.leases import LeaseClock
from engine.delivery.ports import RequestJudge
from engine.delivery.pull import Pull
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.reply_window import SMALL_BYTES
from engine.delivery.settings import DeliverySettings
from engine.delivery.shared_filters import SharedFilters
from engine.errors import CorruptionError, OffsetOutOfRangeError, UnreadableError
from engine.filter.native import select
from engine.link.pieces import PIECE
from engine.link.record import HAS_TRAILER
from engine.log.format import whole_records
from engine.log.port import DeliveryLog
from engine.log.types import RecordSlice

TOO_LARGE_MAX = 10_000
"""Maximum number of cursors whose next message is remembered as too large for a link without room."""

limited = LimitedLog(logging.getLogger(__name__))


class Dispatcher:
    """Leases ranges of cursors to pulls.

    Args:
        dirty: cursors whose progress has to be written.
        now_ns: monotonic clock, by which the native form bounds its reads of older segments.

    Attributes:
        requests: judges requests; None: every message is dispatched as it is.
        later: cursors whose filter continues in the next period; they have left their rings.
    """

    def __init__(
        self, store: DeliveryLog, settings: DeliverySettings, lease_clock: LeaseClock, dirty: dict[QueueCursor, None],
        counts: DeliveryCounts, requests: RequestJudge | None, now_ns: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._settings, self._lease_clock = store, settings, lease_clock
        self._dirty, self._counts = dirty, counts
        self.requests = requests
        self.later: dict[QueueCursor, None] = {}
        self.shared = SharedFilters(settings.shared_filters_min)
        self._budget = FilterBudget(settings.filter_tests_max)
        self._too_large: dict[QueueCursor, tuple[int, int]] = {}
        self._wanted = self._given = 0  # messages of the pull in progress

    def fill(self, pull: Pull, group: GroupView, now_ms: int) -> None:
        """Fill the pull from its subscription until it is full or nothing is left. The first message always fits."""
        ring = pull.subscription.ring
        quantum = self._settings.quantum_bytes
        self._wanted, self._given = pull.messages_left, 0
        while ring and pull.messages_left > 0 and pull.bytes_left > 0:
            cursor = next(iter(ring))
            cursor.credit = min(cursor.credit + quantum, quantum)
            given = self._given
            if cursor.credit <= 0 or self._try_queue(cursor, pull, group, now_ms):
                if pull.messages_left > 0 or self._given > given:
                    ring.move_to_end(
                        cursor
                    )  # else it has messages that may not join this pull: its turn is the next one
            else:
                del ring[cursor]
                cursor.credit = 0

    def _try_queue(self, cursor: QueueCursor, pull: Pull, group: GroupView, now_ms: int) -> bool:
        """Dispatch from one cursor. A queue that the disk cannot read now rests; what was leased before stays."""
        try:
            return self._dispatch_queue(cursor, pull, group, now_ms)
        except (OSError, UnreadableError):
            self._store.watch(cursor.topic_id, cursor.queue)
            return False

    def _dispatch_queue(self, cursor: QueueCursor, pull: Pull, group: GroupView, now_ms: int) -> bool:
        """Dispatch from one cursor until its turn is over or the pull is full; False when the cursor is exhausted."""
        if not cursor.is_sorted and not sort_open(cursor, self._store):
            self._store.watch(cursor.topic_id, cursor.queue)
            return False
        if cursor.filter is not None:
            return self._dispatch_filtered(cursor, pull, group, now_ms)
        seen = False
        while pull.messages_left > 0 and pull.bytes_left > 0 and cursor.credit > 0:
            first, end = cursor.plan(pull.messages_left)
            if first == end and not seen:
                # Only after everything seen before is used up: asking the log costs more than the rest of a small turn.
                cursor.see(*self._store.bounds(cursor.topic_id, cursor.queue))
                seen = True
                continue
            if first == end:
                self._rest(cursor)
                return False
            if first != cursor.next_offset and (end := self._bound_again(cursor, pull, first, end)) == first:
                break
            if (known := self._too_large_at(cursor, pull, first)) is not None:
                self._end_short(cursor, pull, first, known)
                break
            pieces = self._read(cursor, first, end, min(cursor.credit, pull.bytes_left))
            if pieces and self.requests is not None:
                pieces = self._drop_expired(cursor, first, pieces)
            if pieces is None:
                continue
            if not pieces:
                self._store.watch(cursor.topic_id, cursor.queue)
                return False
            size = 0
            for piece in pieces:
                size += len(piece.records)
            if size > (pull.bytes_left if pull.piece_count else pull.first_bytes_max):
                self._end_short(cursor, pull, first, size)
                break
            given_end = pieces[-1].first_offset + pieces[-1].count
            size = self._lease_in_order(cursor, pull, group, first, given_end, pieces, now_ms)
            pull.bytes_left -= size
            cursor.credit -= size
            self._counts.delivered_bytes += size
            if given_end < end:
                break  # the turn's bytes are used up; continuing would make one lease per message
        return True

    def _bound_again(self, cursor: QueueCursor, pull: Pull, first: int, end: int) -> int:
        """Return the end of what may join the pull of first..end, which failed before; `first`: the pull ends here."""
        room = cursor.pull_max_at(first, self._wanted) - self._given
        if room <= 0:
            pull.messages_left = 0
            return first
        return min(end, first + room)

    def _too_large_at(self, cursor: QueueCursor, pull: Pull, first: int) -> int | None:
        """Size of the message at `first` when it is known not to fit. Pulls without room would read it again and again."""
        if pull.first_bytes_max > SMALL_BYTES or pull.piece_count:
            return None
        offset, size = self._too_large.get(cursor, (-1, 0))
        return size if offset == first and size > pull.first_bytes_max else None

    def _end_short(self, cursor: QueueCursor, pull: Pull, first: int, size: int) -> None:
        """The message at `first` does not fit. Without an earlier one the pull waits for room."""
        pull.bytes_left = 0
        if not pull.piece_count:
            pull.is_short = True
            if len(self._too_large) >= TOO_LARGE_MAX:
                self._too_large.clear()
            self._too_large[cursor] = first, size

    def _dispatch_filtered(self, cursor: QueueCursor, pull: Pull, group: GroupView, now_ms: int) -> bool:
        """As _dispatch_queue(), for a group with a filter."""
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
            if not fresh and (end := self._bound_again(cursor, pull, first, end)) == first:
                break
            if fresh:
                begin, end = self.shared.narrow(cursor, first, end)
                self._leave_out(cursor, first, begin)
                first = begin
                self._budget.spend(1, 0)
                if begin == end:
                    continue
            pieces = self._read(cursor, first, end, cursor.credit)
            if pieces and self.requests is not None:
                pieces = self._drop_expired(cursor, first, pieces)
            if pieces is None:
                continue
            if not pieces:
                self._store.watch(cursor.topic_id, cursor.queue)
                return False
            cursor.credit -= sum(len(piece.records) for piece in pieces)
            for piece in pieces:
                if fresh and self.shared.learn(cursor, piece.first_offset, piece.records, 0):
                    self._budget.spend(piece.count, 0)
                if not self._select(cursor, pull, group, piece, now_ms):
                    return True
        return True

    def _select(self, cursor: QueueCursor, pull: Pull, group: GroupView, piece: RecordSlice, now_ms: int) -> bool:
        """Lease the messages that the filter selects, range by range; leave out the others.

        False when the pull is full.
        """
        at, count, stored_at_ms, records = piece
        asked, selected = pull.messages_left, 0
        is_bound = bool(pull.piece_count) or pull.first_bytes_max < len(records)
        bytes_max = pull.bytes_left if pull.piece_count else max(pull.bytes_left, pull.first_bytes_max)
        decided, ranges = select(
            cursor.filter, records, 0, pull.messages_left, bytes_max if is_bound else pull.bytes_left, is_bound
        )
        done = at
        for index, messages, start, end in ranges:
            first = at + index
            self._leave_out(cursor, done, first)
            done = first + messages
            part = RecordSlice(first, messages, stored_at_ms, records[start:end])
            size = self._lease_in_order(cursor, pull, group, first, done, [part], now_ms)
            selected += messages
            pull.bytes_left -= size
            self._counts.delivered_bytes += size
        self._leave_out(cursor, done, at + decided)
        self._budget.spend(decided, cursor.filter.cost)
        if decided < count and selected < asked:
            pull.is_short = not pull.piece_count
            pull.bytes_left = 0  # the next one does not fit
        return decided == count

    def _leave_out(self, cursor: QueueCursor, first: int, end: int) -> None:
        if end > first:
            cursor.leave_out(first, end, self._lease_clock.next_lease())
            self._dirty[cursor] = None
            self._counts.passed_over += end - first

    def _lease_in_order(
        self,
        cursor: QueueCursor,
        pull: Pull,
        group: GroupView,
        first: int,
        end: int,
        pieces: list[RecordSlice],
        now_ms: int,
    ) -> int:
        """Lease the pieces, with order by key only the messages whose turn it is; returns the leased bytes."""
        if cursor.keys is not None and first == cursor.next_offset:
            return self._lease_by_key(cursor, pull, group, pieces, now_ms)
        self._lease(cursor, pull, group, first, end, pieces, now_ms)
        return sum(len(piece.records) for piece in pieces)

    def _lease_by_key(
        self, cursor: QueueCursor, pull: Pull, group: GroupView, pieces: list[RecordSlice], now_ms: int
    ) -> int:
        """Lease those of the new messages that are first of their key; the others wait. Returns the leased bytes."""
        assert cursor.keys is not None
        taken: list[RecordSlice] = []  # of the range that grows
        size = 0
        for at, _, stored_at_ms, records in pieces:
            start = end = 0
            first = offset = at
            for record in whole_records(records):
                if (
                    cursor.keys.admit(offset, key_number(record))
                    if cursor.keys.moves is None
                    else cursor.keys.admit_moving(offset, record)
                ):
                    end += len(record)
                else:
                    _gather(taken, first, offset, stored_at_ms, records[start:end])
                    size += self._lease_gathered(cursor, pull, group, taken, now_ms)
                    cursor.wait(offset)
                    first, start, end = offset + 1, end + len(record), end + len(record)
                offset += 1
            _gather(taken, first, offset, stored_at_ms, records[start:end])
        self._dirty[cursor] = None
        return size + self._lease_gathered(cursor, pull, group, taken, now_ms)

    def _lease_gathered(
        self, cursor: QueueCursor, pull: Pull, group: GroupView, taken: list[RecordSlice], now_ms: int
    ) -> int:
        if not taken:
            return 0
        end = taken[-1].first_offset + taken[-1].count
        self._lease(cursor, pull, group, taken[0].first_offset, end, taken, now_ms)
        size = sum(len(piece.records) for piece in taken)
        taken.clear()
        return size

    def _lease(
        self, cursor: QueueCursor, pull: Pull, group: GroupView, first: int, end: int, pieces: list, now_ms: int
    ) -> None:
        lease = self._lease_clock.next_lease()
        due_ms = now_ms + pull.invisible_ms
        attempt = cursor.lease(first, end, lease, due_ms)
        self._lease_clock.due(cursor, due_ms)
        self._dirty[cursor] = None
        count = end - first
        token = group.receipts.make(cursor.queue, count, cursor.topic_hash, first, lease)
        out = pull.pieces
        for at, messages, stored_at_ms, records in pieces:
            out.append(
                PIECE.pack(token, at, at - first, cursor.queue, messages, attempt, stored_at_ms, len(records), 0)
            )
            out.append(records)
            if self.requests is not None and records[4] & HAS_TRAILER:
                self.requests.given(group.name, records)
        pull.piece_count += len(pieces)
        pull.messages_left -= count
        self._counts.deliveries += count
        self._given += count
        if attempt > 1:
            self._counts.redeliveries += count
            pull.messages_left = min(pull.messages_left, cursor.pull_max(attempt, self._wanted) - self._given)

    def _rest(self, cursor: QueueCursor) -> None:
        """Put the cursor to rest: new records wake it, or an acknowledgement that makes room."""
        if cursor.next_offset >= cursor.end_seen:
            self._store.watch(cursor.topic_id, cursor.queue)
        else:
            cursor.blocked = True
        if cursor.order and cursor.in_flight:
            cursor.blocked = True  # messages in flight hold back the rest

    def _read(self, cursor: QueueCursor, first: int, end: int, bytes_max: int) -> list | None:
        """Return the pieces; None after damage was passed over, so that the cursor has to plan again."""
        try:
            return self._store.read(cursor.topic_id, cursor.queue, first, end - first, bytes_max)
        except OffsetOutOfRangeError as out:
            cursor.see(out.first_offset, out.end_offset)
            return None if out.first_offset > first else []
        except CorruptionError as damage:
            after = damage.next_offset
            limited.error(
                "group=%s topic=%s queue=%d offset=%d: cannot be read, continuing at offset %s: %s",
                cursor.group.name, cursor.topic_name, cursor.queue, first, after, damage,
            )  # fmt: skip
            if after is None or after <= first:
                return []
            # The messages are lost for every group; a queue that stops here would block the messages after them, too.
            if first == cursor.next_offset:
                end = min(cursor.end_seen, cursor.first_early())  # none is in flight: one step, however many they are
            self._pass_over(cursor, first, min(after, end))
            return None

    def _drop_expired(self, cursor: QueueCursor, first: int, pieces: list) -> list | None:
        """Return the pieces before the first expired request.

        None when the request is the first piece, which is passed over.
        """
        assert self.requests is not None
        for index, piece in enumerate(pieces):
            # A request is alone in its batch, and so in its piece.
            if piece.records[4] & HAS_TRAILER and self.requests.is_over(piece.records, piece.stored_at_ms):
                if index:
                    return pieces[:index]
                self._pass_over(cursor, first, first + 1)
                self.requests.expired += 1
                return None
        return pieces

    def _pass_over(self, cursor: QueueCursor, first: int, end: int) -> None:
        """Count as done messages that cannot be delivered."""
        lease = self._lease_clock.next_lease()
        cursor.lease(first, end, lease, 0)
        cursor.settle(first, end, lease, False)
        self._dirty[cursor] = None


def _gather(taken: list[RecordSlice], first: int, end: int, stored_at_ms: int, records: bytes) -> None:
    if end > first:
        taken.append(RecordSlice(first, end - first, stored_at_ms, records))
