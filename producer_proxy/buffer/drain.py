"""Drain: sends a store's entries to the engine, one batch at a time, at a bounded rate.

Entries are deleted only after the engine's acknowledgement.
"""

import logging
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import gevent
from gevent.event import AsyncResult, Event

from common.contract import Code
from common.limited_log import LimitedLog
from common.wire.names import find_names
from engine.client.durability import FSYNC
from producer_proxy.buffer.errors import BufferError_
from producer_proxy.buffer.pace import Pace
from producer_proxy.buffer.store import BufferEntry, BufferStore, KeptEntry
from producer_proxy.targets.base import MessageSlice, ResolveError, SendTarget, ToldOutcome
from producer_proxy.targets.topics import TopicRoute, Topics

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

BATCH_BYTES_MAX = 512 << 10
PAUSE_S_MIN, PAUSE_S_MAX = 0.02, 0.25
IDLE_S = UNDEFINED_S = 1.0
FENCED_S = 0.1
TAKEN = frozenset((int(Code.OK), int(Code.DUPLICATE)))


class Drainer:
    """Empties one store.

    Args:
        topics: routes by name; may block.
        per_s: entries per second at most. More empties the buffer sooner and leaves less of the engine for live
            traffic.
        wait_for: topics that another store has to drain first.
        served: called after a batch of which the engine took entries.
    """

    def __init__(
        self, store: BufferStore, topics: Topics, per_s: int,
        wait_for: Callable[[], set[str]] = set, served: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._store, self._topics, self.pace = store, topics, Pace(per_s)
        self._wait_for, self._served = wait_for, served
        self._held: set[str] = set()  # topics that are not tried before their time in _due
        self._due: list[tuple[float, str]] = []
        self._last_pause_s: dict[str, float] = {}  # by topic that was refused last time
        self._pause_s = PAUSE_S_MIN
        self._stopping = Event()
        self.drained = 0
        self.last_error: str | None = None
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Wait for the current batch, for a second at most. Unacknowledged entries stay in the store."""
        self._stopping.set()
        self._store.filled.set()
        self._greenlet.join(1.0)
        self._greenlet.kill()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._store.filled.wait(IDLE_S)
            try:
                pause_s = self.step()
            except BufferError_ as error:
                self._note(str(error))
                pause_s = PAUSE_S_MAX
            except Exception:
                limited.exception("buffer=%s: internal error while draining", self._store.name)
                pause_s = IDLE_S
            self._pause(pause_s)

    def _pause(self, pause_s: float) -> None:
        asked_s = time.monotonic() + pause_s
        self._stopping.wait(pause_s)
        if pause_s:
            self.pace.woke(time.monotonic() - asked_s)

    def step(self) -> float:
        """Drain one batch; returns the pause before the next.

        Blocks until the engine has answered or its link is lost.
        """
        started = time.monotonic()
        batch = self._store.take(self._skipped(started), self.pace.batch, BATCH_BYTES_MAX)
        if not batch:
            if not self._store.room.entries:
                self._store.filled.clear()
                return 0.0
            # Looking for an entry among many held topics takes time of the loop, at most a twentieth of it.
            return max(PAUSE_S_MIN, 20 * (time.monotonic() - started))
        sendable = self._without_fenced(self._without_undefined(batch))
        codes = self._send(sendable) if sendable else []
        if codes is None:
            self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)
            return self._pause_s
        self._settle(sendable, codes)
        now = time.monotonic()
        return self.pace.drained(len(batch), now - started, now)

    def _skipped(self, now: float) -> set[str]:
        while self._due and self._due[0][0] <= now:
            self._held.discard(heappop(self._due)[1])
        before = self._wait_for()
        return self._held | before if before else self._held

    def _without_undefined(self, batch: list[KeptEntry]) -> list[KeptEntry]:
        """The entries of topics that are defined.

        Those of topics that were deleted on purpose go to the dead-letter list. A definition that is missing for another
        reason may come back, so its topic's entries stay.
        """
        undefined = {topic for topic in {kept.entry.topic for kept in batch} if self._topics.definition(topic) is None}
        if not undefined:
            return batch
        deleted = {topic for topic in undefined if self._topics.was_deleted(topic)}
        if gone := [kept for kept in batch if kept.entry.topic in deleted]:
            self._dead_letter(gone, "the topic was deleted")
        for topic in undefined - deleted:
            self._hold_for(topic, UNDEFINED_S)
            self._note(f"topic={topic}: it has no definition, and nobody deleted it: its messages are kept")
        return [kept for kept in batch if kept.entry.topic not in undefined]

    def _without_fenced(self, batch: list[KeptEntry]) -> list[KeptEntry]:
        """The entries of topics whose home does not change just now. The others wait for it."""
        fenced = {topic for topic in {kept.entry.topic for kept in batch} if self._topics.fences.of(topic) is not None}
        for topic in fenced:
            self._hold_for(topic, FENCED_S)
        return [kept for kept in batch if kept.entry.topic not in fenced] if fenced else batch

    def _send(self, batch: list[KeptEntry]) -> list[int] | None:
        """The target's code per entry; None: no entry was taken, try again."""
        try:
            routes = self._topics.find([kept.entry.topic for kept in batch])
        except ResolveError as error:
            self._note(str(error))
            return None
        by_target: dict[SendTarget, list[int]] = {}
        for index, kept in enumerate(batch):
            by_target.setdefault(routes[kept.entry.topic].target, []).append(index)
        codes = [int(Code.UNAVAILABLE)] * len(batch)
        taken = []
        for target, indexes in by_target.items():
            slices = [_slice(batch[index].entry, routes[batch[index].entry.topic]) for index in indexes]
            answer: AsyncResult = AsyncResult()
            if target.submit(target.served_as(FSYNC), slices, answer.set):
                taken.append((indexes, answer))
        if not taken and any(target.primary is self._topics.targets.default for target in by_target):
            self._note("the engine's link is down or full")
            return None
        # No deadline: a batch without an answer must not be sent a second time. It ends with the answer or with the
        # link.
        for indexes, answer in taken:
            outcomes: list[ToldOutcome] = answer.get()
            for index, outcome in zip(indexes, outcomes, strict=True):
                codes[index] = int(outcome[0])
        return codes

    def _settle(self, batch: Sequence[KeptEntry], codes: Sequence[int]) -> None:
        taken = (
            batch
            if TAKEN.issuperset(codes)
            else [kept for kept, code in zip(batch, codes, strict=True) if code in TAKEN]
        )
        if taken:
            self.drained += len(taken)
            self._pause_s, self.last_error = PAUSE_S_MIN, None
            if any(self._is_engines(topic) for topic in {kept.entry.topic for kept in taken}):
                self._served()
            self._store.remove(taken)
        refused: dict[tuple[str, int], list[KeptEntry]] = {}
        for kept, code in zip(batch, codes, strict=True):
            if code not in TAKEN:
                refused.setdefault((kept.entry.topic, code), []).append(kept)
        for topic in {kept.entry.topic for kept in taken} - {topic for topic, _ in refused}:
            self._last_pause_s.pop(topic, None)
        for (topic, code), entries in refused.items():
            if 100 <= code < 200 and code != Code.UNKNOWN_TOPIC:
                self._dead_letter(entries, f"the engine refused it with code {code}")
            else:
                self._hold(topic, code)

    def _is_engines(self, topic: str) -> bool:
        definition = self._topics.definition(topic)
        return definition is not None and self._topics.targets.of(definition).primary is self._topics.targets.default

    def _hold(self, topic: str, code: int) -> None:
        """Skip a topic that its target refuses now, with growing back-off, and continue with the others."""
        pause_s = min(PAUSE_S_MAX, self._last_pause_s.get(topic, PAUSE_S_MIN / 2) * 2)
        self._last_pause_s[topic] = pause_s
        self._hold_for(topic, pause_s)
        self._note(f"topic={topic}: the engine answered {code}")

    def _hold_for(self, topic: str, pause_s: float) -> None:
        self._held.add(topic)
        heappush(self._due, (time.monotonic() + pause_s, topic))

    def _dead_letter(self, entries: Sequence[KeptEntry], reason: str) -> None:
        """Move entries to the dead-letter list; while it cannot be written, their topics wait and the others go on."""
        topics = {kept.entry.topic for kept in entries}
        limited.error("buffer=%s topic=%s: %d entries to the dead-letter list: %s",
                  self._store.name, entries[0].entry.topic, len(entries), reason)  # fmt: skip
        try:
            self._store.dead_letter(entries, reason)
        except BufferError_ as error:
            for topic in topics:
                self._hold_for(topic, UNDEFINED_S)
            self._note(str(error))

    def _note(self, sentence: str) -> None:
        if self.last_error != sentence:
            limited.warning("buffer=%s: the drain waits: %s", self._store.name, sentence)
        self.last_error = sentence


def _slice(entry: BufferEntry, route: TopicRoute) -> MessageSlice:
    """The entry as it was first submitted: it binds to a queue as in TopicRoute.binding_of."""
    key: bytes | int | None = entry.key
    if key is None and entry.assigned_id is None and (own_id := find_names(entry.message)[0]) is not None:
        key = route.target.queue_of_id(route.destination, own_id)
    return MessageSlice(route.destination, key, entry.assigned_id, entry.message)
