"""The view: topics, progress and segments as sorted keys, derived from the log. The latest in memory, the rest in the
store.

Nothing reaches the store before the log that says it is durable. RocksDB may write out its buffers at any time, and a
view ahead of the log would reuse the ids of topics that a power cut has taken back. Replay may repeat what the store
holds already; every value is absolute, so that does no harm.

Keys: t ‖ topic name → id, queues, time of creation if known. i ‖ id → queues, stored name. p ‖ progress key → value.
q ‖ topic id ‖ queue ‖ first offset in a segment → the segment's base, the queue's next offset after it. m ‖ … → state of the log as a
whole. w ‖ a segment's base ‖ offset of a TIMER_MARK batch → addresses in the segment of timers that have ended; an entry under
the highest offset: all of them have. u ‖ base of a segment that was read in part → most records in the rest. v ‖ that base ‖ topic id
‖ queue → the queue has no records in the rest. Numbers in keys are big-endian, to sort.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from heapq import merge

from engine.env.store import Store
from engine.log.types import Topic
from engine.log.view_layer import ViewLayer

_QUEUE_KEY = struct.Struct(">sIIQ")
_QUEUE_VALUE = struct.Struct("<QQ")
_TOPIC_VALUE = struct.Struct("<II")
_ENDED_KEY = struct.Struct(">sQQ")
_UNREAD_KEY, _UNREAD_VALUE = struct.Struct(">sQ"), struct.Struct("<Q")
_WHOLE_KEY = struct.Struct(">sQII")
_CHECKPOINT = struct.Struct("<I16sQQII")

CHECKPOINT_KEY = b"mcheckpoint"
_FIRED_KEY = b"mfired"
_LOST_KEY = b"mheaders-lost"
VIEW_VERSION = 1
NO_SEGMENT = 0xFFFFFFFFFFFFFFFF
_ALL = 0xFFFFFFFFFFFFFFFF


class Checkpoint:
    """State of the log that the store reflects.

    The log is replayed from the segment at `segment_base` on. It was durable up to `durable_position`.
    """

    def __init__(self, log_id: bytes, segment_base: int, durable_position: int, next_topic_id: int, epoch: int) -> None:
        self.log_id = log_id
        self.segment_base = segment_base
        self.durable_position = durable_position
        self.next_topic_id = next_topic_id
        self.epoch = epoch

    def pack(self) -> bytes:
        """The value under CHECKPOINT_KEY."""
        return _CHECKPOINT.pack(
            VIEW_VERSION, self.log_id, self.segment_base, self.durable_position, self.next_topic_id, self.epoch
        )

    @classmethod
    def parse(cls, value: bytes) -> "Checkpoint | None":
        """The checkpoint, or None when it has another version, so that the view is rebuilt."""
        if len(value) != _CHECKPOINT.size or value[:4] != VIEW_VERSION.to_bytes(4, "little"):
            return None
        return cls(*_CHECKPOINT.unpack(value)[1:])


def queue_key(topic_id: int, queue: int, first_offset: int) -> bytes:
    """Key of a segment in which the queue has records, the first at `first_offset`."""
    return _QUEUE_KEY.pack(b"q", topic_id, queue, first_offset)


def queue_value(segment_base: int, next_offset: int) -> bytes:
    """Value under `queue_key`."""
    return _QUEUE_VALUE.pack(segment_base, next_offset)


def after_prefix(prefix: bytes) -> bytes:
    """The lowest key above all that begin with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def _topic(name: str, value: bytes) -> Topic:
    topic_id, queues = _TOPIC_VALUE.unpack_from(value)
    return Topic(topic_id, name, queues, int.from_bytes(value[_TOPIC_VALUE.size :], "little"))


class View:
    """Sorted keys in layers: the first takes changes, older ones are being written to the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._layers = [ViewLayer()]
        checkpoint = Checkpoint.parse(store.get(CHECKPOINT_KEY) or b"")
        self.replay_base = checkpoint.segment_base if checkpoint is not None else 0
        """Segment at which replay begins by the durable checkpoint; segments from here on must not be deleted."""
        self._unread = {
            _UNREAD_KEY.unpack(key)[1]: _UNREAD_VALUE.unpack(value)[0] for key, value in store.scan(b"u", b"v")
        }

    @property
    def pending_count(self) -> int:
        """Number of changed keys that no checkpoint includes yet."""
        return len(self._layers[0].changes)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes the key."""
        self._layers[0].changes[key] = value

    def put_all(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply put() to each entry."""
        self._layers[0].changes.update(entries)

    def get(self, key: bytes) -> bytes | None:
        """The current value, or None."""
        for layer in self._layers:
            if key in layer.changes:
                return layer.changes[key]
        return self.store.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end, in order, as of the call."""
        changed: dict[bytes, bytes | None] = {}
        for layer in reversed(tuple(self._layers)):
            changed.update((key, layer.changes[key]) for key in layer.between(start, end))
        stored = ((key, value) for key, value in self.store.scan(start, end) if key not in changed)
        return merge(stored, sorted((key, value) for key, value in changed.items() if value is not None))

    def unstored(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with the prefix that no checkpoint includes yet; after a start, those that it has replayed."""
        changes = self._layers[0].changes
        for key in self._layers[0].between(prefix, after_prefix(prefix)):
            if (value := changes[key]) is not None:
                yield key, value

    def freeze(self) -> dict[bytes, bytes | None]:
        """Freeze the changes so far for a checkpoint; later ones go to a new layer. They stay visible until `drop`."""
        frozen = self._layers[0].changes
        self._layers.insert(0, ViewLayer())
        return frozen

    def drop(self, frozen: dict[bytes, bytes | None]) -> None:
        """Drop a frozen layer that has reached the store. Safe in another thread.

        Layers leave at the end, oldest first, and come at the start.
        """
        assert self._layers[-1].changes is frozen
        self._layers.pop()

    # Topics

    def put_topic(self, topic: Topic) -> None:
        """Make the topic known by name and by id; one without queues is forgotten."""
        newest = self.topic(topic.name)
        if not topic.queues:
            self.put(b"i" + topic.id.to_bytes(4, "big"), None)
            if newest is not None and newest.id == topic.id:
                self.put(b"t" + topic.name.encode(), None)
            return
        if newest is None or newest.id <= topic.id:  # else it was deleted, and created again as another topic
            made = topic.made_ms.to_bytes(8, "little") if topic.made_ms else b""
            self.put(b"t" + topic.name.encode(), _TOPIC_VALUE.pack(topic.id, topic.queues) + made)
        self.put(b"i" + topic.id.to_bytes(4, "big"), topic.queues.to_bytes(4, "little") + topic.stored_name.encode())

    def topic(self, name: str) -> Topic | None:
        """The topic of that name."""
        value = self.get(b"t" + name.encode())
        return _topic(name, value) if value else None

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of that id."""
        value = self.get(b"i" + topic_id.to_bytes(4, "big"))
        return Topic.stored(topic_id, value[4:].decode(), int.from_bytes(value[:4], "little")) if value else None

    def topics(self, prefix: str, after: str, limit: int) -> list[Topic]:
        """Up to `limit` topics in the order of their names."""
        low = b"t" + prefix.encode()
        start = max(low, b"t" + after.encode() + b"\0" if after else low)
        found: list[Topic] = []
        for key, value in self.scan(start, after_prefix(low)):
            if len(found) >= limit:
                break
            found.append(_topic(key[1:].decode(), value))
        return found

    # Timers that have fired, were cancelled or relocated

    def put_ended_timers(self, base: int, mark_offset: int, addresses: bytes) -> None:
        """Note the mark at that offset: timers of the segment at `base` have ended."""
        self.put(_ENDED_KEY.pack(b"w", base, mark_offset), addresses)

    def put_all_ended(self, base: int) -> None:
        """Note that no timer of the segment is pending."""
        self.forget_timers(base)
        self.put(_ENDED_KEY.pack(b"w", base, _ALL), b"-")

    def ended_timers(self, base: int) -> list[int] | None:
        """Sorted addresses of timers that have ended; None when all have."""
        ended = array("I")
        for key, value in self.scan(_ENDED_KEY.pack(b"w", base, 0), _ENDED_KEY.pack(b"w", base + 1, 0)):
            if _ENDED_KEY.unpack(key)[2] == _ALL:
                return None
            ended.frombytes(value)
        return sorted(ended)

    def segments_with_ended_timers(self) -> list[int]:
        """Bases of the segments that have marks, of deleted ones too. One seek each."""
        found: list[int] = []
        following = 0
        while entry := next(iter(self.scan(_ENDED_KEY.pack(b"w", following, 0), b"x")), None):
            found.append(_ENDED_KEY.unpack(entry[0])[1])
            following = found[-1] + 1
        return found

    def forget_timers(self, base: int) -> None:
        """Drop the segment's marks: it was deleted, or all its timers have ended."""
        for key, _ in list(self.scan(_ENDED_KEY.pack(b"w", base, 0), _ENDED_KEY.pack(b"w", base + 1, 0))):
            self.put(key, None)

    def put_fired_from(self, position: int | None) -> None:
        """Note the lowest position of batches of fired timers that no mark covers; None when there are none."""
        self.put(_FIRED_KEY, None if position is None else position.to_bytes(8, "little"))

    def fired_from(self) -> int | None:
        """The position that `put_fired_from` noted last, as of the checkpoint."""
        value = self.get(_FIRED_KEY)
        return None if value is None else int.from_bytes(value, "little")

    # Batches that are lost with their headers

    def put_headers_lost(self) -> None:
        """Note, durably, that ends of queues have to be raised. Before an index file hides the damage. Only in recovery."""
        self.store.write([(_LOST_KEY, b"-")])
        self.store.flush()

    def put_ends_raised(self) -> None:
        """Drop that note, in the store once the log that raises the ends is durable."""
        if self.are_headers_lost():
            self.put(_LOST_KEY, None)

    def are_headers_lost(self) -> bool:
        """Whether the note is there."""
        return self.get(_LOST_KEY) is not None

    # Segments of a queue

    def stored_end(self, topic_id: int, queue: int) -> int:
        """The queue's next offset after its last sealed segment; 0 when it has none."""
        found = self.span_of(topic_id, queue, 0xFFFFFFFFFFFFFFFF)
        return found[2] if found else 0

    def free_offset(self, topic_id: int, queue: int) -> int:
        """An offset at or above `stored_end` that no record of the queue can have.

        Records of the queue may lie in bytes that a start could not read, after those that are known.
        """
        found = self.span_of(topic_id, queue, 0xFFFFFFFFFFFFFFFF)
        _, base, end = found or (0, 0, 0)
        if base == NO_SEGMENT:
            base = 0
        for unread, records in self._unread.items():
            if unread >= base and self.store.get(_WHOLE_KEY.pack(b"v", unread, topic_id, queue)) is None:
                end += records
        return end

    def put_unread(self, base: int, records: int) -> None:
        """Note how many records at most are in bytes of the segment that could not be read. Only in recovery."""
        self._unread[base] = records
        self.store.write([(_UNREAD_KEY.pack(b"u", base), _UNREAD_VALUE.pack(records))])

    def put_whole(self, base: int, queues: list[tuple[int, int]]) -> None:
        """Note queues (topic id, queue) of which no record is in those bytes. Only in recovery."""
        self.store.write([(_WHOLE_KEY.pack(b"v", base, *queue), b"") for queue in queues])

    def forget_unread(self, bases: Iterable[int]) -> None:
        """Drop what was noted of these segments: they were read as a whole, or deleted."""
        for base in [base for base in bases if self._unread.pop(base, 0)]:
            whole = self.store.scan(_UNREAD_KEY.pack(b"v", base), _UNREAD_KEY.pack(b"v", base + 1))
            self.store.write([], [_UNREAD_KEY.pack(b"u", base), *(key for key, _ in whole)])

    def unread_segments(self) -> list[int]:
        """Bases of the segments that `put_unread` named."""
        return list(self._unread)

    def queues_with_segments(self, topic_id: int, queues: int) -> Iterator[int]:
        """Those of the topic's queues that have sealed segments or a counter, the highest first. One seek each."""
        queue = queues - 1
        while queue >= 0:
            found = self.store.last_at_or_before(queue_key(topic_id, queue, 0xFFFFFFFFFFFFFFFF))
            if found is None or found[0][:5] != queue_key(topic_id, 0, 0)[:5]:
                return
            queue = _QUEUE_KEY.unpack(found[0])[2]
            yield queue
            queue -= 1

    def span_of(self, topic_id: int, queue: int, offset: int) -> tuple[int, int, int] | None:
        """The queue's last segment that begins at or below `offset`.

        Returns:
            (the queue's first offset in it, the segment's base, the queue's next offset after it), or None.
        """
        found = self.store.last_at_or_before(queue_key(topic_id, queue, offset))
        if found is None or found[0][:9] != queue_key(topic_id, queue, 0)[:9]:
            return None
        first_offset = _QUEUE_KEY.unpack(found[0])[3]
        segment_base, next_offset = _QUEUE_VALUE.unpack(found[1])
        if segment_base == NO_SEGMENT and first_offset:
            # A segment that was written when the counter was noted begins before it, and may end after it.
            before = self.span_of(topic_id, queue, first_offset - 1)
            if before is not None and before[2] > next_offset:
                return before
        return first_offset, segment_base, next_offset

    def segments_from(self, topic_id: int, queue: int, offset: int) -> Iterator[tuple[int, int]]:
        """(first offset, segment base) of the queue's sealed segments that begin at or above `offset`, in order."""
        end = queue_key(topic_id, queue, 0xFFFFFFFFFFFFFFFF)
        for key, value in self.store.scan(queue_key(topic_id, queue, offset), end):
            yield _QUEUE_KEY.unpack(key)[3], _QUEUE_VALUE.unpack(value)[0]

    def begins_later(self, base: int, topic_id: int, queue: int, first_offset: int) -> bool:
        """Whether the queue begins at that offset in a segment after the one at `base`."""
        value = self.store.get(queue_key(topic_id, queue, first_offset))
        return value is not None and base < _QUEUE_VALUE.unpack(value)[0] < NO_SEGMENT

    def keys_within(self, base: int, topic_id: int, queue: int, first_offset: int, next_offset: int) -> list[bytes]:
        """Keys of the queue that say that it begins in the segment at `base` after its first offset there."""
        found = self.store.scan(queue_key(topic_id, queue, first_offset + 1), queue_key(topic_id, queue, next_offset))
        return [key for key, value in found if _QUEUE_VALUE.unpack(value)[0] == base]

    def keys_up_to(self, topic_id: int, queue: int, first_offset: int) -> list[bytes]:
        """Keys of the queue's segments that begin at or below the offset, except its last one, which holds its
        counter."""
        gone: list[bytes] = []
        start, end = queue_key(topic_id, queue, 0), queue_key(topic_id, queue, 0xFFFFFFFFFFFFFFFF)
        last = queue_key(topic_id, queue, first_offset)
        before = None
        for key, _ in self.store.scan(start, end):
            if before is not None:
                gone.append(before)
            if key > last:
                break
            before = key
        return gone

    def segments_of_topic(self, topic_id: int) -> Iterator[int]:
        """Bases of sealed segments with records of the topic, in any order; some may be deleted."""
        for _, value in self.store.scan(queue_key(topic_id, 0, 0), queue_key(topic_id + 1, 0, 0)):
            yield _QUEUE_VALUE.unpack(value)[0]

    def forget_queues(self, topic_id: int) -> None:
        """Drop the queues of a forgotten topic: only once the record that forgets it is durable.

        A power cut could bring back the topic, and without them its offsets would begin at 0 again.
        """
        gone = [key for key, _ in self.store.scan(queue_key(topic_id, 0, 0), queue_key(topic_id + 1, 0, 0))]
        if gone:
            self.store.write([], gone)

    def put_counter(self, topic_id: int, queue: int, next_offset: int) -> None:
        """Note where a queue continues whose segments are all deleted, or whose last messages are lost.

        Only in recovery; a later segment replaces it.
        """
        key = queue_key(topic_id, queue, next_offset)
        if self.stored_end(topic_id, queue) < next_offset:
            self.store.write([(key, queue_value(NO_SEGMENT, next_offset))])
