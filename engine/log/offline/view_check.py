"""Checks the view of topics, progress and queues in RocksDB against the log that it was built from.

One way only: everything that the log says below the checkpoint must be in the view. The view may have more, from
segments that retention has deleted.
"""

import struct
from collections.abc import Callable
from functools import partial

from common.names import split_stored_name
from engine.errors import CorruptionError
from engine.log.format import BATCH_HEADER_SIZE, KIND_PROGRESS, KIND_TOPIC, parse_progress, parse_topic, split_records
from engine.log.offline.directory import Directory
from engine.log.offline.finding import DAMAGE, NOTE, VIEW, Finding
from engine.log.segment.native import SealedIndex, crc32c
from engine.log.view import Checkpoint, View, queue_key, queue_value
from engine.log.write.copied_state import is_copied, state_after

CHUNK = 1024
LISTED_MAX = 20
_QUEUE_ENTRY = struct.Struct(">xIIQ"), struct.Struct("<QQ")


class ViewCheck:
    """Takes the log segment by segment; `finish` reports the rest.

    Holds the checksum of each progress key's last value, and nothing else that grows with the log.
    """

    def __init__(self, directory: Directory, report: Callable[[Finding], None]) -> None:
        self._directory, self._report = directory, report
        self._progress: dict[bytes, int] = {}
        self._later: dict[bytes, set[int]] = {}
        self._unknown: dict[int, str] = {}  # topics that the view lacks, unless a later record forgets them
        self._wrong = 0
        view, checkpoint = directory.view, directory.checkpoint
        self._of: tuple[View, Checkpoint] | None = (view, checkpoint) if view and checkpoint else None
        if self._of is None:
            self._explain()

    def control(self, position: int, batch: bytes) -> None:
        """Take a control batch of the log, or one of copied records, in order."""
        if is_copied(batch):
            key, state = state_after(batch)
            self._take_value(position, key, state.encode())
            return
        for payload in split_records(batch[BATCH_HEADER_SIZE:]):
            if batch[10] == KIND_TOPIC:
                self._guarded(partial(self._topic, position, payload))
            elif batch[10] == KIND_PROGRESS:
                self._take_progress(position, payload)

    def queues(self, base: int, directory: SealedIndex) -> None:
        """Take the queues of a whole segment.

        Queues of segments that a start would replay need not be in the view yet.
        """
        if self._of is not None and base < self._of[1].segment_base:
            self._guarded(lambda: self._queues(base, directory))

    def finish(self) -> None:
        """Compare progress, and read every key, so that RocksDB verifies every block."""
        for reason in self._unknown.values():
            self._found(reason)
        self._guarded(self._compare_progress)
        self._guarded(self._read_all)
        if self._wrong > LISTED_MAX:
            self._found(f"{self._wrong - LISTED_MAX} more entries are wrong", listed=True)

    def _explain(self) -> None:
        directory = self._directory
        what = NOTE if directory.view_fault == "missing" or directory.view else DAMAGE
        fault = directory.view_fault or "it has no checkpoint of this version"
        self._report(
            Finding(what, directory.state_path, 0, 0, 0, f"{fault}; the next start rebuilds it from the log", VIEW)
        )

    def _guarded(self, check: Callable[[], None]) -> None:
        if self._of is None:
            return
        try:
            check()
        except (CorruptionError, OSError) as error:
            self._of = None
            self._found(f"{error}; the next start rebuilds it from the log", listed=True)

    def _found(self, reason: str, *, listed: bool = False) -> None:
        self._wrong += 1
        if listed or self._wrong <= LISTED_MAX:
            self._report(Finding(DAMAGE, self._directory.state_path, 0, 0, 0, reason, VIEW))

    def _topic(self, position: int, payload: bytes) -> None:
        assert self._of is not None
        topic_id, name, queues = parse_topic(payload)
        if not queues:
            self._unknown.pop(topic_id, None)
        if position >= self._of[1].durable_position:
            return
        by_id, by_name = self._of[0].topic_by_id(topic_id), self._of[0].topic(split_stored_name(name)[0])
        if not queues:
            if by_id is not None:
                self._found(f"topic={name} id={topic_id}: the log has forgotten it, the view has {by_id}")
            return
        is_known = by_id is not None and by_id.stored_name == name and by_id.queues >= queues
        if not is_known or by_name is None or by_name.id < topic_id:  # a higher id: it was deleted and created again
            self._unknown[topic_id] = (
                f"topic={name} id={topic_id} queues={queues}: the log has it, the view has {by_id} and {by_name}"
            )

    def _take_progress(self, position: int, payload: bytes) -> None:
        self._take_value(position, *parse_progress(payload))

    def _take_value(self, position: int, key: bytes, value: bytes) -> None:
        if self._of is not None and position < self._of[1].durable_position:
            self._progress[key] = crc32c(value)
        else:
            self._later.setdefault(key, set()).add(crc32c(value))

    def _compare_progress(self) -> None:
        """Compare the values.

        A crash between the store's keys and its checkpoint leaves newer values, so those pass, too.
        """
        assert self._of is not None
        for key, crc in self._progress.items():
            held = crc32c(self._of[0].store.get(b"p" + key) or b"")
            if held != crc and held not in self._later.get(key, ()):
                self._found(f"progress key={key.hex()}: the view's value is not the log's last one")

    def _queues(self, base: int, directory: SealedIndex) -> None:
        assert self._of is not None
        store = self._of[0].store
        for start in range(0, directory.directory_count, CHUNK):
            for topic_id, queue, first, following in directory.queues(start, CHUNK):
                if store.get(queue_key(topic_id, queue, first)) != queue_value(base, following):
                    self._found(
                        f"topic={topic_id} queue={queue}: offsets {first}..{following} are not where the segment at {base} has them"
                    )

    def _read_all(self) -> None:
        assert self._of is not None
        view, there = self._of[0], {segment.base for segment in self._directory.segments[1:]}
        previous: tuple[int, int, int] | None = None
        for key, value in view.store.scan(b"", b"\xff"):
            if key[:1] == b"i":
                name = value[4:].decode(errors="replace")
                known = view.topic(name)
                if known is None or known.id != int.from_bytes(key[1:], "big"):
                    self._found(f"topic={name}: known by id and not by name")
            elif key[:1] == b"q":
                topic_id, queue, first, base, following = _queue_entry(key, value)
                if (
                    previous is not None
                    and previous[:2] == (topic_id, queue)
                    and previous[2] != first
                    and base in there
                ):
                    self._hole(topic_id, queue, previous[2], first, base)
                previous = topic_id, queue, following

    def _hole(self, topic_id: int, queue: int, end: int, first: int, base: int) -> None:
        self._report(
            Finding(
                DAMAGE, f"{self._directory.path}/log/{base:020d}.seg", base, 0, max(first - end, 0),
                f"topic={topic_id} queue={queue}: offsets {end}..{first} are in no segment",
            )
        )  # fmt: skip


def _queue_entry(key: bytes, value: bytes) -> tuple[int, int, int, int, int]:
    """(topic id, queue, first offset, base of the segment, next offset); the inverse of queue_key and queue_value."""
    topic_id, queue, first = _QUEUE_ENTRY[0].unpack(key)
    base, following = _QUEUE_ENTRY[1].unpack(value)
    return topic_id, queue, first, base, following
