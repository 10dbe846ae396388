"""Expiry of unused topics: those of a family that have been empty and unasked for long are forgotten.

Once a day of running, all topics are looked at in small steps. One of which the log holds nothing, and that no request
has named for an hour, gets a record of the hours at which it was first found so. A use removes the record. When it is
old enough, a topic is forgotten if no delayed message is pending for it and every group with progress there would
begin with the first message of a topic that comes back under its name. Steps and crashes: docs/design/0022.

Key of progress: b"\0unused" ‖ u32 topic id, big-endian → u32 hours of running ‖ u64 sum of its queues' end offsets. The
sum tells that it was used between two days, though its messages are deleted again.
"""

import logging
import struct
from collections.abc import Callable, Collection, Generator, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from common.limited_log import LimitedLog
from engine.delivery.creations import TOPIC, Creations
from engine.delivery.policy import Policies
from engine.delivery.progress import split_key
from engine.delivery.topic_changes import TopicChanges
from engine.errors import EngineError
from engine.log.port import DeliveryLog
from engine.log.types import Topic

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)

STEP_MS = 50
PAUSE_MS = 1_000
ROUND_HOURS = 24
QUEUES_PER_STEP = 100
"""Queues looked at per step: about a millisecond."""
USES_PER_STEP = 50
KEYS_PER_STEP = 1_000
PAGE = 50
DUE_MAX = 10_000
"""Topics forgotten per day; the others wait for the next."""
TOLD_MAX = 3
LOOKED_MAX = 100_000
"""Records that one dry run looks at: a quarter of a second when none of them is old enough."""
HOUR_MS = 3_600_000
_PREFIX = b"\0unused"
_VALUE = struct.Struct(">IQ")


class FamilyTopics(Protocol):
    """The topics that families define."""

    def id_window_ms(self, topic: str) -> int | None:
        """Window of the topic's ids; None unless it is known that a family defines the topic, and nothing else."""


class NoFamilyTopics:
    """No family, where there is no configuration."""

    def id_window_ms(self, topic: str) -> int | None:
        """No topic expires."""
        return None


class DelayedSearch(Protocol):
    """See engine.timers.topic_search.TopicSearch."""

    found: set[int]
    is_certain: bool

    def step(self) -> bool: ...

    def catch_up(self) -> None: ...

    def close(self) -> None: ...


class DelayedTopics(Protocol):
    """The topics of delayed messages: `engine.timers.timers.Timers`."""

    def search_topics(self, wanted: Collection[int]) -> DelayedSearch | None: ...


class UnusedSince(NamedTuple):
    """Since when a topic is unused: hours of running, and the sum of its queues' ends then."""

    since: int
    end: int


class TopicExpiry:
    """Goes round all topics once a day of running.

    Args:
        changes: knows what the loaded groups do with a topic.
        creations: counts the topics per application, and notes which are named by requests.
        delayed: finds topics with delayed messages.
        wall_ms: the wall clock.
        hours: returns the hours that the engine has run.
        expire_hours: 0: no topic expires; then step() need not be called.

    Attributes:
        expired: topics forgotten by this process.
    """

    def __init__(
        self, store: DeliveryLog, policies: Policies, families: FamilyTopics, changes: TopicChanges, creations: Creations,
        delayed: DelayedTopics, wall_ms: Callable[[], int], hours: Callable[[], int], expire_hours: int,
    ) -> None:  # fmt: skip
        self._store, self._policies, self._families, self._changes = store, policies, families, changes
        self._creations, self._uses, self._delayed = creations, creations.topic_uses, delayed
        self._wall_ms, self._hours, self.expire_hours = wall_ms, hours, expire_hours
        self._seen_hours = hours()
        self._work: Iterator[None] | None = None
        self.expired = 0

    def step(self, now_ms: int) -> int:
        """Do a small piece of work; returns the time of the next call."""
        hours = self._hours()
        if hours != self._seen_hours and self._work is None:
            self._work = self._work_of_hour(is_round=hours // ROUND_HOURS != self._seen_hours // ROUND_HOURS)
            self._seen_hours = hours
        if self._work is None:
            return now_ms + PAUSE_MS
        try:
            next(self._work)
        except StopIteration:
            self._work = None
        except (EngineError, OSError) as error:
            self._work = None
            limited.warning("topics are not looked through for unused ones today: %s", error)
        return now_ms + STEP_MS

    def unused(self, hours: int) -> Iterator[Topic]:
        """Topics of families that were not used for as many hours of running.

        A delayed message or a group that starts late may still keep one: a round finds that out when it is due.
        """
        for raw, value in islice(self._store.progress(_PREFIX), LOOKED_MAX):
            if self._hours() - _VALUE.unpack(value)[0] < hours:
                continue
            topic = self._store.topic_by_id(int.from_bytes(raw[len(_PREFIX) :], "big"))
            if topic is not None and self._is_unused(topic):
                yield topic

    def _work_of_hour(self, *, is_round: bool) -> Iterator[None]:
        for count, topic_id in enumerate(self._uses.take()):
            if self.expire_hours and self._record(topic_id) is not None:
                self._put(topic_id, None)
            if count % USES_PER_STEP == 0:
                yield
        if is_round and self.expire_hours:
            yield from self._go_round()

    def _go_round(self) -> Iterator[None]:
        due: dict[int, Topic] = {}
        yield from self._look_at_all(due)
        if not due:
            return
        late = yield from self._late_starts(due)
        search = self._delayed.search_topics(due.keys())
        if search is None:
            limited.warning("topics=%d: kept: delayed messages are pending that cannot be read now", len(due))
            return
        try:
            while not search.step():
                yield
            yield from self._forget_all(list(due.values()), late, search)
        finally:
            search.close()

    def _look_at_all(self, due: dict[int, Topic]) -> Iterator[None]:
        after, looked = "", 0
        while page := self._store.topics("", after, PAGE):
            after = page[-1].name
            for topic in page:
                self._look_at(topic, due)
                looked += topic.queues
                if looked >= QUEUES_PER_STEP:
                    looked = 0
                    yield
            yield

    def _look_at(self, topic: Topic, due: dict[int, Topic]) -> None:
        """Note whether the topic is in use now; take it up when it has not been for long enough."""
        end, record = self._end_if_unused(topic), self._record(topic.id)
        if end is None:
            if record is not None:
                self._put(topic.id, None)
        elif record is None or record.end != end:
            self._put(topic.id, UnusedSince(self._hours(), end))
        elif self._hours() - record.since >= self._hours_needed(topic) and len(due) < DUE_MAX:
            due[topic.id] = topic

    def _late_starts(self, due: Collection[int]) -> Generator[None, None, set[int]]:
        """Those of the topics in which a group has progress that would miss messages if the topic came back."""
        found: set[int] = set()
        for count, (raw, _) in enumerate(self._store.progress(b"g")):
            parts = split_key(raw)
            if parts is not None and parts[1] in due and not self._begins_with_all(parts[0]):
                found.add(parts[1])
            if count % KEYS_PER_STEP == 0:
                yield
        return found

    def _begins_with_all(self, group: str) -> bool:
        return self._policies.of(group).begins_with_all(self._wall_ms())

    def _forget_all(self, due: list[Topic], late: set[int], search: DelayedSearch) -> Iterator[None]:
        forgotten: list[str] = []
        try:
            for topic in due:
                search.catch_up()
                if not search.is_certain:
                    limited.warning("topics=%d: kept: a delayed message cannot be read now", len(due) - len(forgotten))
                    return
                if topic.id in late or topic.id in search.found or self._is_needed(topic):
                    self._put(topic.id, None)
                else:
                    if not forgotten:
                        self._store.put_progress([self._changes.floor_entry()])
                    self._forget(topic)
                    forgotten.append(topic.name)
                yield
        finally:
            names = ", ".join(forgotten[:TOLD_MAX]) + (", …" if len(forgotten) > TOLD_MAX else "")
            log.info(
                "topics=%d: forgotten, unused for %d hours or more: %s; %d are kept: they are needed",
                len(forgotten), self.expire_hours, names or "none", len(due) - len(forgotten),
            )  # fmt: skip

    def _is_needed(self, topic: Topic) -> bool:
        """Whether the topic is in use at this moment. Nothing comes between this and _forget()."""
        is_same = self._store.topic(topic.name) == topic and self._is_unused(topic)
        return (
            not is_same or self._changes.is_used(topic.id) or self._changes.starts_late(topic.id, self._wall_ms())
        )  # fmt: skip

    def _forget(self, topic: Topic) -> None:
        """Forget the topic: its count and its record first, so that a crash in between leaves no more than them out."""
        self._creations.forget(TOPIC, topic.name)
        self._put(topic.id, None)
        self._store.forget_topic(topic)
        self.expired += 1

    def _is_unused(self, topic: Topic) -> bool:
        """Whether the topic is as it was when it was first found unused."""
        end, record = self._end_if_unused(topic), self._record(topic.id)
        return end is not None and record is not None and record.end == end

    def _end_if_unused(self, topic: Topic) -> int | None:
        if topic.made_ms or self._uses.has(topic.id) or self._families.id_window_ms(topic.name) is None:
            return None
        return self._store.end_if_empty(topic)

    def _hours_needed(self, topic: Topic) -> int:
        """An id of the topic counts for its window, so the topic stays for as long after its last use."""
        window_ms = self._families.id_window_ms(topic.name) or 0
        return max(self.expire_hours, -(-window_ms // HOUR_MS) + 1)

    def _record(self, topic_id: int) -> UnusedSince | None:
        value = next((value for _, value in self._store.progress(_key(topic_id))), None)
        return None if value is None else UnusedSince(*_VALUE.unpack(value))

    def _put(self, topic_id: int, unused: UnusedSince | None) -> None:
        self._store.put_progress([(_key(topic_id), _VALUE.pack(*unused) if unused else b"")])


def _key(topic_id: int) -> bytes:
    return _PREFIX + topic_id.to_bytes(4, "big")
