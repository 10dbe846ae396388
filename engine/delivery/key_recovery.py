"""Start of an order by key: adds the messages that were open before it."""

from engine.delivery.queue_cursor import QueueCursor
from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.log.format import whole_records
from engine.log.port import DeliveryLog

READ_MAX = 1_000
READ_BYTES_MAX = 1 << 20


def sort_open(cursor: QueueCursor, store: DeliveryLog) -> bool:
    """Add messages that were open before the order by key; False while their records are being fetched.

    Leases stay: the order holds for later dispatches.
    """
    keys = cursor.keys
    assert keys is not None
    for start, end, is_ready in [(each.first, each.end, each.ready) for each in cursor.in_flight.ranges]:
        first = max(start, cursor.sorted_until)
        while first < end:
            try:
                pieces = store.read(cursor.topic_id, cursor.queue, first, min(end - first, READ_MAX), READ_BYTES_MAX)
            except OffsetOutOfRangeError as out:
                cursor.see(out.first_offset, out.end_offset)
                return sort_open(cursor, store)
            except CorruptionError as damage:
                # The message cannot be delivered; dispatch passes over it.
                cursor.sorted_until = first = max(first + 1, damage.next_offset or 0)
                continue
            if not pieces:
                return False
            for record in [record for piece in pieces for record in whole_records(piece.records)]:
                if not keys.admit_moving(first, record) and is_ready:
                    cursor.in_flight.make_waiting(first)
                first += 1
            cursor.sorted_until = first
    cursor.is_sorted = True
    return True
