"""Copied batches: records of a foreign source, appended exactly once. Design: docs/design/0036-copied-batches.md."""

from engine.errors import DiskFullError, SourceMovedError
from engine.link.codes import OK, SOURCE_MOVED, UNKNOWN_TOPIC
from engine.link.copy import Copied, CopyPart, ForeignSource
from engine.link.record import RECORD_HEAD_SIZE
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, CODE_INVALID, FLAG_COPIED, SOURCE_OFFSET_SIZE
from engine.log.view import View, after_prefix
from engine.log.write.catalogue import TopicCatalogue
from engine.log.write.checkpoint import Checkpoints
from engine.log.write.copied_state import (
    COPIED_PREFIX,
    SOURCE_PREFIX,
    CopiedState,
    SourceRecord,
    copied_key,
    copied_state,
    source_key,
    source_records,
    state_after,
)
from engine.log.write.native import Appender
from engine.log.write.progress import ProgressRecords
from engine.log.write.refusal import Refusal

NO_SOURCE = CopiedState(0, 0, 0)


class CopiedQueues:
    """Appends copied batches, and knows how far each queue's source is copied.

    The state is read from the view for each batch and kept nowhere else, so a start, a slave and a new master have it
    as the log has it.
    """

    def __init__(
        self, view: View, appender: Appender, progress: ProgressRecords, checkpoints: Checkpoints, refusal: Refusal,
        catalogue: TopicCatalogue,
    ) -> None:  # fmt: skip
        self._view, self._appender, self._progress = view, appender, progress
        self._checkpoints, self._refusal, self._catalogue = checkpoints, refusal, catalogue

    def state(self, topic_id: int, queue: int) -> CopiedState:
        """How far the queue's source is copied; number 0: no source was accepted for it."""
        return copied_state(self._view, topic_id, queue) or NO_SOURCE

    def sources(self, topic_id: int, queue: int) -> list[SourceRecord]:
        """All sources that were accepted for the queue, oldest first."""
        return source_records(self._view, topic_id, queue)

    def accept(
        self, topic_id: int, queue: int, source: ForeignSource, *, start: int, replaces: int, end: int, reason: str,
        now_ms: int, next_offset: int | None = None,
    ) -> CopiedState:  # fmt: skip
        """Make it the queue's source, in place of the one with the number `replaces` (0: there is none).

        In the page cache on return. Does nothing when exactly this was accepted before and nothing was copied since.

        Args:
            start: the source's first offset to copy.
            end: the queue's end offset.
            next_offset: the next offset that the queue must have; None: any.
        Raises:
            SourceMovedError: the queue's source has another number, or another next offset. Nothing was changed.
            DiskFullError: there is no room. The source is not the queue's.
        """
        self._refusal.check()
        state = self.state(topic_id, queue)
        if state.number == replaces + 1 and state.next == start and self._is_source(topic_id, queue, state, source):
            return state
        if state.number != replaces:
            raise SourceMovedError(
                f"topic={topic_id} queue={queue}: its source has number {state.number}, not {replaces}: ask for its "
                "state again"
            )
        if next_offset is not None and state.next != next_offset:
            raise SourceMovedError(
                f"topic={topic_id} queue={queue}: its next offset is {state.next}, not {next_offset}: another copier goes on"
            )
        record = SourceRecord(replaces + 1, source, start, end, now_ms, reason)
        following = CopiedState(record.number, start, end)
        # Both are in one batch, so a torn tail cannot part them.
        self._progress.put_progress([
            (source_key(topic_id, queue, record.number), record.encode()),
            (copied_key(topic_id, queue), following.encode()),
        ])  # fmt: skip
        return following

    def append(self, part: CopyPart, now_ms: int) -> Copied:
        """Append one batch, or say what the queue expects. In the page cache on return.

        All or nothing. It fits if the part knows the queue's source and its next offset, and the batch's first source
        offset is not below that. Then the next offset is the one after the batch's last.

        Args:
            part: its batch is without padding.
        Raises:
            LogError: as an append of messages; nothing of the batch is stored.
        """
        batch = part.batch
        self._refusal.check()
        if self._refusal.sentence:
            raise DiskFullError(self._refusal.sentence)
        _, _, _, _, flags, _, topic_id, queue, _, number, _, _ = BATCH_HEADER.unpack_from(batch)
        topic = self._catalogue.topic_by_id(topic_id)
        if topic is None:
            return Copied(UNKNOWN_TOPIC, 0, 0, 0)
        first = _first_source_offset(batch)
        if flags != FLAG_COPIED or queue >= topic.queues or first is None:
            return Copied(CODE_INVALID, 0, 0, 0)
        state = self.state(topic_id, queue)
        is_next = state.number == number and state.next == part.next <= first
        if not is_next or not self._is_source(topic_id, queue, state, part.source):
            return Copied(SOURCE_MOVED, state.number, state.next, 0)
        ((code, offset),) = self._appender.append(batch + bytes(-len(batch) % 8), 1, now_ms, trusted=True)
        if code != OK:
            return Copied(code, state.number, state.next, 0)
        return Copied(OK, number, self._take(batch, offset).next, offset)

    def forget(self, topic_id: int) -> None:
        """Drop what is kept of a topic that is gone. Raises DiskFullError."""
        prefixes = [b"p" + prefix + topic_id.to_bytes(4, "big") for prefix in (SOURCE_PREFIX, COPIED_PREFIX)]
        gone = [key[1:] for prefix in prefixes for key, _ in self._view.scan(prefix, after_prefix(prefix))]
        if gone:
            self._progress.put_progress([(key, b"") for key in gone])

    def _take(self, batch: bytes, offset: int) -> CopiedState:
        """Put the state after a stored batch into the view, before the next append: that one may begin a segment."""
        key, state = state_after(batch)
        state = state._replace(end=state.end + offset)  # the caller's bytes have no offset
        self._view.put(b"p" + key, state.encode())
        self._checkpoints.bound_pending()
        return state

    def _is_source(self, topic_id: int, queue: int, state: CopiedState, source: ForeignSource) -> bool:
        value = self._view.get(b"p" + source_key(topic_id, queue, state.number))
        return value is not None and SourceRecord.decode(state.number, value).source == source


def _first_source_offset(batch: bytes) -> int | None:
    """ForeignSource offset of the first record; None when its size does not fit."""
    end = BATCH_HEADER_SIZE + 4 + int.from_bytes(batch[BATCH_HEADER_SIZE : BATCH_HEADER_SIZE + 4], "little")
    if not BATCH_HEADER_SIZE + RECORD_HEAD_SIZE + SOURCE_OFFSET_SIZE < end <= len(batch):
        return None
    return int.from_bytes(batch[end - SOURCE_OFFSET_SIZE : end], "little")
