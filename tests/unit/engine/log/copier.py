"""A copier of a foreign source for a log under test, and what the log has of it."""

from engine.errors import CorruptionError, DiskFullError
from engine.link.batch import encode_copied_batch
from engine.link.copy import Copied, CopyPart, ForeignSource
from engine.link.record import encode_copied_record, read_record

SOURCE, OTHER = ForeignSource(b"cluster/topic-1", 3), ForeignSource(b"cluster/topic-2", 3)


def body(offset: int) -> bytes:
    """The body of the source's record at that offset."""
    return b"record %d" % offset


def copied_batch(topic_id: int, queue: int, number: int, offsets, size: int = 0) -> bytes:
    """A batch of the source's records at these offsets, without padding."""
    records = [encode_copied_record(body(offset).ljust(size, b"."), offset) for offset in offsets]
    batch = encode_copied_batch(topic_id, queue, number, records)
    return batch[: int.from_bytes(batch[4:8], "little")]


class Copier:
    """Copies a source into one queue; knows the next offset and the number as the log told it."""

    def __init__(self, machine, topic_id: int = 1, queue: int = 0, source: ForeignSource = SOURCE) -> None:
        self.machine, self.topic_id, self.queue, self.source = machine, topic_id, queue, source
        self.number, self.next = 0, 0

    def accept(self, start: int = 0, replaces: int = 0, reason: str = "a test") -> None:
        """Have the source accepted."""
        end = self.machine.log.bounds(self.topic_id, self.queue)[1]
        self.machine.log.copied.accept(
            self.topic_id, self.queue, self.source, start=start, replaces=replaces, end=end, reason=reason, now_ms=1
        )
        self.ask()

    def ask(self) -> None:
        """Learn the state, as a copier does when it starts."""
        self.number, self.next, _ = self.machine.log.copied.state(self.topic_id, self.queue)

    def copy(self, *offsets: int, size: int = 0) -> Copied:
        """Copy the records at these offsets, in one batch, and take over what the log answers."""
        batch = copied_batch(self.topic_id, self.queue, self.number, offsets, size)
        result = self.machine.log.copied.append(CopyPart(self.source, self.next, batch), self.machine.env.now_ms())
        if not result.code:
            self.next = result.next
        return result

    def try_copy(self, *offsets: int, size: int = 0) -> Copied | None:
        """The same; None: there is no room."""
        try:
            return self.copy(*offsets, size=size)
        except DiskFullError:
            return None


def stored_offsets(machine, topic_id: int = 1, queue: int = 0) -> list[int | None]:
    """The source offset of each message that the queue has; None: it was not copied."""
    offset, end = machine.log.bounds(topic_id, queue)
    found: list[int | None] = []
    while offset < end:
        try:
            pieces = machine.log.read(topic_id, queue, offset, 1000, 1 << 20)
        except CorruptionError as gap:
            assert gap.next_offset is not None
            offset = gap.next_offset
            continue
        for piece in pieces:
            at = 0
            while at < len(piece.records):
                record, at = read_record(piece.records, at)
                found.append(record.source_offset)
                if record.source_offset is not None:
                    assert record.message.rstrip(b".") == body(record.source_offset)
            offset = piece.first_offset + piece.count
    return found
