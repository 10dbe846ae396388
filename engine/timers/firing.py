"""Due timers become ordinary records: one append with a batch a queue, then the next rounds of loops."""

import logging
from collections.abc import Iterable

from engine.errors import DiskFullError
from engine.link.timer import ANY_QUEUE, Timer
from engine.log.format import CODE_OK, KIND_FIRED, pack_batch
from engine.timers import loops
from engine.timers.counts import Counts
from engine.timers.marks import Marks
from engine.timers.shelf import Place, Shelf
from engine.timers.table_pure import Entry

log = logging.getLogger("penstock.engine")

STEP_TIMERS, STEP_BYTES = 1000, 512 << 10
"""Fired at once: a few milliseconds of work."""

Due = tuple[Place, Timer, Entry]


class Firing:
    """Fires what the table gives out as due.

    A timer that fires leaves the table, is appended, and is marked later. Nothing of it is lost in between: until its mark is in the log,
    the log says that it is pending, and recovery finds the fired copy by its id.
    """

    def __init__(self, shelf: Shelf, marks: Marks, counts: Counts) -> None:
        self._shelf, self._marks, self._counts = shelf, marks, counts
        self._turn = 0
        self._limit = STEP_TIMERS
        self._bytes_max = min(STEP_BYTES, shelf.log.batch_bytes_max // 4)
        self._owed: list[tuple[Place, Timer]] = []
        """Rounds that a full disk refused, with the place of the one before, which is not marked until they are stored."""

    def step(self, now_ms: int) -> int:
        """Fire some of what is due and return how many.

        Raises DiskFullError, then what was not stored is pending again; PartlyWrittenError, then only a restart can tell what was.
        """
        self.append_rounds(())
        entries = self._shelf.table.take_due(now_ms, self._limit)
        if not entries:
            return 0
        due = self._read(entries)
        self._append(due)
        for _, timer, _ in due:
            self._counts.observe(now_ms - timer.due_ms)
        return len(due)

    def _read(self, entries: list[Entry]) -> list[Due]:
        """The timers of the entries, as far as one append takes them; the rest is pending again."""
        due: list[Due] = []
        size = 0
        for index, entry in enumerate(entries):
            place = Place(*entry[:2])
            timer = self._shelf.read(place)
            if timer is not None and due and size + len(timer.record) > self._bytes_max:
                self._give_back(entries[index:])
                break
            if timer is None:
                self._counts.lost += 1
                log.error(
                    "position=%d: a delayed message, due at %d, does not verify: it is lost", place.position, entry[2]
                )
                self._marks.fired([place])
                continue
            due.append((place, timer, entry))
            size += len(timer.record)
        self._limit = max(1, min(STEP_TIMERS, self._bytes_max * max(len(due), 1) // max(size, 1)))
        return due

    def _give_back(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._shelf.table.add(*entry)

    def _append(self, due: list[Due]) -> None:
        groups: dict[tuple[int, int], list[Due]] = {}
        self._turn += 1
        for each in due:
            _, timer, _ = each
            groups.setdefault((timer.topic_id, self._queue(timer)), []).append(each)
        batches = [
            pack_batch(KIND_FIRED, topic_id, queue, (sized(timer.record) for _, timer, _ in group))
            for (topic_id, queue), group in groups.items()
        ]
        if not batches:
            return
        self._marks.will_fire()
        try:
            results = self._shelf.log.append(b"".join(batches), len(batches))
        except DiskFullError:
            self._give_back(entry for _, _, entry in due)
            raise
        fired: list[tuple[Place, Timer]] = []
        for (code, _), group in zip(results, groups.values(), strict=True):
            if code == CODE_OK:
                fired += [(place, timer) for place, timer, _ in group]
            else:
                self._give_back(entry for _, _, entry in group)
        self.append_rounds(fired)

    def _queue(self, timer: Timer) -> int:
        """Its queue; without a key one of the topic's for all of an append, the next for the next."""
        if timer.queue != ANY_QUEUE:
            return timer.queue
        return self._turn % self._shelf.log.queue_count(timer.topic_id)

    @property
    def owes(self) -> bool:
        """Whether rounds of loops wait for room on the disk."""
        return bool(self._owed)

    def append_rounds(self, fired: Iterable[tuple[Place, Timer]]) -> None:
        """These have fired: append the next rounds of loops, and what a full disk has refused before. Raises DiskFullError."""
        ended: list[Place] = []
        for place, timer in fired:
            following = loops.following(timer, place.position)
            if following is None:
                ended.append(place)
            else:
                self._owed.append((place, following))
        self._marks.fired(ended)
        if not self._owed:
            return
        owed = self._owed
        for place, (_, timer) in zip(self._shelf.append([timer.pack() for _, timer in owed]), owed, strict=True):
            self._shelf.enter(place, timer)
        self._owed = []
        self._marks.fired(before for before, _ in owed)


def sized(record: bytes) -> bytes:
    """The record with its size in front."""
    return len(record).to_bytes(4, "little") + record
