"""Gathers due timers into batches of their queues. The reference of _gather.pyx."""

from typing import NamedTuple

from common.keyhash import queue_now
from engine.errors import CorruptionError
from engine.link.record import key_of
from engine.link.timer import ANY_QUEUE, Timer
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, BATCH_MAGIC, FLAG_CHECK_IDS, KIND_FIRED, padded
from engine.log.timer_log import TimerLog
from engine.timers.record import EXHAUSTED, read_timer
from engine.timers.table import TimerEntry


class Gathered(NamedTuple):
    """Result for the first `taken` entries; the others did not fit.

    Attributes:
        batches: ready for an append. groups: per batch, the numbers of its entries.
        looping: number -> timer, of loops with a further round.
        damaged: numbers of entries that fail verification. unread: numbers of entries that could not be read.
        size: bytes of all records.
    """

    taken: int
    batches: bytes
    groups: list[list[int]]
    looping: dict[int, Timer]
    damaged: list[int]
    unread: list[int]
    size: int


_NO_SIZE = bytes(4)


class KeyQueues:
    """Queues of keys today, in topics that got more queues after a message was sent. One step's: it remembers topics."""

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._old_counts: dict[int, list[int]] = {}

    def has_grown(self, topic_id: int) -> bool:
        """Whether the topic has ever got more queues."""
        if topic_id not in self._old_counts:
            self._old_counts[topic_id] = self._log.old_counts(topic_id)
        return bool(self._old_counts[topic_id])

    def of(self, timer: Timer) -> int:
        """The queue of a message with a key."""
        if self.has_grown(timer.topic_id):
            return self.now(timer.topic_id, timer.queue, timer.record)
        return timer.queue

    def now(self, topic_id: int, queue: int, record: bytes) -> int:
        """The queue in which the message of such a topic belongs; its own one if that is another broker group's.

        Args:
            record: flags ‖ [16 bytes of assigned id] ‖ message.
        """
        key = key_of(_NO_SIZE + record)
        if key is None:
            return queue
        found = queue_now(key, queue, self._old_counts[topic_id], self._log.queue_count(topic_id))
        return found if self._log.owns(topic_id, found) else queue


def gather(log: TimerLog, entries: list[TimerEntry], bytes_max: int, turn: int) -> Gathered:
    """Read due timers and lay out one batch per queue; a message with an id check gets its own batch.

    Args:
        bytes_max: for all records together, but one always fits.
        turn: chooses the queue of messages without one, modulo the topic's number of queues. That of a key is chosen
            today: the topic may have got more queues since the send.
    Raises OSError of `EXHAUSTED`, and errors of the store that knows the topics.
    """
    groups: dict[tuple[int, int, int], list[int]] = {}
    records: dict[int, bytes] = {}
    looping: dict[int, Timer] = {}
    damaged: list[int] = []
    unread: list[int] = []
    windows: dict[int, int] = {}
    size, taken, keys = 0, len(entries), KeyQueues(log)
    for number, (base, at, _, _) in enumerate(entries):
        try:
            timer = read_timer(log, base, at)
        except (OSError, CorruptionError) as error:
            if getattr(error, "errno", None) in EXHAUSTED:
                raise
            unread.append(number)
            continue
        if timer is not None and records and size + len(timer.record) > bytes_max:
            taken = number
            break
        queues = 0 if timer is None else log.queue_count(timer.topic_id)
        if timer is None or not queues:
            damaged.append(number)
            continue
        size += len(timer.record)
        records[number] = timer.record
        queue = turn % queues if timer.queue == ANY_QUEUE else keys.of(timer)
        alone = number + 1 if timer.id_window_ms else 0
        groups.setdefault((timer.topic_id, queue, alone), []).append(number)
        windows[number] = timer.id_window_ms
        if timer.gap_ms and timer.times:
            looping[number] = timer
    batches = b"".join(
        _batch(topic_id, queue, windows[group[0]], [records[number] for number in group])
        for (topic_id, queue, _), group in groups.items()
    )
    return Gathered(taken, batches, list(groups.values()), looping, damaged, unread, size)


def _batch(topic_id: int, queue: int, window_ms: int, records: list[bytes]) -> bytes:
    body = b"".join(len(record).to_bytes(4, "little") + record for record in records)
    size = BATCH_HEADER_SIZE + len(body)
    flags = FLAG_CHECK_IDS if window_ms else 0
    header = BATCH_HEADER.pack(
        0, size, BATCH_MAGIC, KIND_FIRED, flags, 0, topic_id, queue, len(records), window_ms, 0, 0
    )
    return header + body + bytes(padded(size) - size)
