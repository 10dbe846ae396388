"""The buffer in Redis: durable when its write is answered, provided that Redis is as the guard demands.

Invariants:
1. Only the own slot is written to, in the order of the puts; each topic is always in the same shard.
2. After a failed call the shards are counted again before further entries are taken: `_stale`.
3. The number of entries of each shard is known, so a FLUSHALL or an eviction is found and reported.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.event import AsyncResult, Event
from gevent.lock import RLock
from redis.exceptions import OutOfMemoryError, ResponseError

from common.config.errors import StoreUnavailable
from common.config.store import ConfigStore
from common.keyhash import murmur2
from common.limited_log import LimitedLog
from producer_proxy.buffer.blocks import pack_dead
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_, BufferFull, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.native import entries_of
from producer_proxy.buffer.ordering_keys import OrderingKeys
from producer_proxy.buffer.redis import guard
from producer_proxy.buffer.redis.client import AWAY
from producer_proxy.buffer.redis.layouts import LAYOUTS, HeadChanged, Layout
from producer_proxy.buffer.redis.slots import PREFIX, BufferSlots, NoSlot
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry
from producer_proxy.buffer.value import pack_value

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

KEEP_S, RETRY_S = 2.0, 0.25
PAGE = 500
PAGES_PASSED_OVER = 20  # of held topics, before the others of a shard wait for them
FLUSH_VALUES_MAX, FLUSH_BYTES_MAX = 1000, 8 << 20


class RedisStore(BufferStore):
    """The store.

    Args:
        connect: makes the client; called again until it succeeds. layout: `streams` or `lists`.
        config: where slots are claimed. accepted: weaknesses of this Redis that the operator has allowed by name.
    Raises:
        BufferUnavailable: this Redis is not fit. An unreachable Redis is not an error: the store starts with a fault.
    """

    name = "redis"

    def __init__(
        self, connect: Callable[[], Any], layout: str, config: ConfigStore, limits: RoomLimits, now_ms: Callable[[], int],
        accepted: Collection[str] = (), prefix: str = PREFIX,
    ) -> None:  # fmt: skip
        super().__init__(limits, now_ms)
        self._connect, self._accepted = connect, accepted
        self._client: Any = None
        self._slots = BufferSlots(config, prefix, lambda key: LAYOUTS[layout](self._client, key))
        self._lengths: dict[str, int] = {}  # by key
        self._oldest: dict[str, int] = {}
        self._queue: list[tuple[Sequence[BufferEntry], AsyncResult]] = []
        self._flushing = self._stale = self._broken = False
        self._mutex = RLock()
        self._fault: str | None = "Redis has not answered yet"
        self._warning: str | None = None
        self._dead_count = 0
        self._closed, self._look = False, Event()
        self._check()
        if self._fault and self._unfit:
            raise BufferUnavailable(f"buffer=redis: {self._fault}")
        self._keeper = gevent.spawn(self._keep)

    _unfit = False

    def fault(self) -> str | None:
        return self._fault

    @property
    def dead_count(self) -> int:
        return self._dead_count

    def warning(self) -> str | None:
        return self._warning

    def oldest_at_ms(self) -> int | None:
        return min(self._oldest.values(), default=None)

    def close(self) -> None:
        self._closed = True
        self._keeper.kill()
        with suppress(StoreUnavailable):
            self._slots.close()
        if self._client is not None:
            self._client.close()

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        if self._client is None or (self._fault and not self._unfit):
            return []
        with self._mutex, self._translated_errors():
            if self._stale:
                self._recount()
            for shard in self._slots.drainable():
                if taken := self._take_from(shard, skip, count_max, bytes_max):
                    return taken
        return []

    def _take_from(self, shard: Layout, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        if not self._lengths.get(shard.key):
            return []
        typical = max(1, self.room.bytes // max(1, self.room.entries))
        found = self._entries(shard, shard.read(max(1, min(count_max, bytes_max // typical))))
        if not found:
            self._report_missing(shard, self._lengths.pop(shard.key))
            return []
        self._oldest[shard.key] = found[0][1].accepted_at_ms
        for _ in range(PAGES_PASSED_OVER if shard.passes_over else 0):
            if not found or any(entry.topic not in skip for _, entry in found):
                break
            found = self._entries(shard, shard.read(PAGE, found[-1][0]))
        taken: list[KeptEntry] = []
        for handle, entry in found:
            if entry.topic in skip and shard.passes_over:
                continue
            bytes_max -= entry.size_bytes
            if entry.topic in skip or len(taken) == count_max or (taken and bytes_max < 0):
                break
            taken.append(KeptEntry((shard, handle), entry))
        return taken

    def _entries(self, shard: Layout, values: list[tuple[Any, bytes]]) -> list[tuple[Any, BufferEntry]]:
        """The whole entries; foreign and damaged values are moved to the dead-letter list as they are."""
        entries = entries_of([value for _, value in values])
        found = [(handle, entry) for (handle, _), entry in zip(values, entries, strict=True) if entry is not None]
        if len(found) < len(values):
            odd = [each for each, entry in zip(values, entries, strict=True) if entry is None]
            limited.error(
                "buffer=redis key=%s: %d foreign or damaged values are moved to %s",
                shard.key, len(odd), self._slots.dead_key(),
            )  # fmt: skip
            self._client.rpush(self._slots.dead_key(), *(value for _, value in odd))
            shard.delete([handle for handle, _ in odd])
            self.damaged += len(odd)
            self._lengths[shard.key] -= len(odd)
        return found

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        if self._fault:
            self._leave(entries)
            raise BufferUnavailable(f"buffer=redis: {self._fault}")
        result: AsyncResult = AsyncResult()
        self._queue.append((entries, result))
        if not self._flushing:
            self._flushing = True
            gevent.spawn(self._flush)
        result.get()

    def _leave_unwritten(self, entries: Sequence[BufferEntry]) -> None:
        """Does nothing: `_write` or the flush has already left the keys. They may have been counted again since."""

    def _flush(self) -> None:
        """Send pipelines one by one; puts during a round trip join the next pipeline."""
        try:
            while self._queue:
                with self._mutex:
                    puts = self._next_puts()
                    errors = self._push_or_fail([entry for entries, _ in puts for entry in entries])
                    for entries, result in puts:
                        self._answer(entries, result, errors)
        finally:
            self._flushing = False

    def _answer(self, entries: Sequence[BufferEntry], result: AsyncResult, errors: dict[str, BufferError_]) -> None:
        topics = {entry.topic for entry in entries}
        failed = [errors[topic] for topic in topics if topic in errors]
        if not failed:
            result.set()
            return
        self._leave(entries)
        if len(failed) < len(topics):  # some of them are stored
            self._stale = True
            result.set_exception(BufferUncertain(f"{failed[0]}; a part may be stored"))
        else:
            result.set_exception(next((each for each in failed if isinstance(each, BufferUncertain)), failed[0]))

    def _next_puts(self) -> list[tuple[Sequence[BufferEntry], AsyncResult]]:
        count = size = 0
        for entries, _ in self._queue:
            size += sum(entry.size_bytes for entry in entries)
            if count and (count >= FLUSH_VALUES_MAX or size > FLUSH_BYTES_MAX):
                break
            count += 1
        puts, self._queue = self._queue[:count], self._queue[count:]
        return puts

    def _push_or_fail(self, entries: list[BufferEntry]) -> dict[str, BufferError_]:
        """As `_push`. Whatever fails there, each put gets an answer."""
        try:
            return self._push(entries)
        except Exception as error:
            limited.exception("buffer=redis: internal error while storing")
            self._stale = True
            unknown = BufferUncertain(f"buffer=redis: internal error: {error!r}")
            return dict.fromkeys((entry.topic for entry in entries), unknown)

    def _push(self, entries: list[BufferEntry]) -> dict[str, BufferError_]:
        """Append to the own slot; returns errors by topic."""
        if not self._slots.writable():
            return dict.fromkeys(
                (entry.topic for entry in entries), BufferUnavailable("buffer=redis: its slot was lost")
            )
        by_shard: dict[Layout, list[BufferEntry]] = {}
        for entry in entries:
            by_shard.setdefault(self._shard_of(entry.topic), []).append(entry)
        try:
            pipe = self._client.pipeline(transaction=False)
            steps = [(shard, own, shard.push(pipe, list(map(pack_value, own)))) for shard, own in by_shard.items()]
            answers = pipe.execute(raise_on_error=False)
        except AWAY as error:
            self._away(error)
            return dict.fromkeys((entry.topic for entry in entries), BufferUncertain(f"buffer=redis: {self._fault}"))
        errors: dict[str, BufferError_] = {}
        for shard, own, count in steps:
            step, answers = answers[:count], answers[count:]
            if wrong := next((answer for answer in step if isinstance(answer, Exception)), None):
                errors |= dict.fromkeys(
                    (entry.topic for entry in own), self._understood(wrong, partly=wrong is not step[0])
                )
            else:
                self._count(shard, own, step[-1])
        return errors

    def _count(self, shard: Layout, own: list[BufferEntry], length: int) -> None:
        expected = self._lengths.get(shard.key, 0) + len(own)
        if length < expected:
            self._report_missing(shard, expected - length)
        self._stale = self._stale or length != expected
        self._lengths[shard.key] = length
        self._oldest.setdefault(shard.key, own[0].accepted_at_ms)

    def _understood(self, error: Exception, partly: bool) -> BufferError_:
        text = f"buffer=redis: {error}"
        if not isinstance(error, ResponseError):
            self._away(error)
            return BufferUncertain(text)
        if partly:
            self._stale = True
            return BufferUncertain(text)
        return BufferFull(text) if isinstance(error, OutOfMemoryError) else BufferUnavailable(text)

    def _delete(self, kept: Sequence[KeptEntry]) -> None:
        by_shard: dict[Layout, list[Any]] = {}
        for each in kept:
            shard, handle = each.handle
            by_shard.setdefault(shard, []).append(handle)
        with self._mutex, self._translated_errors():
            for shard, handles in by_shard.items():
                # Also when the outcome is unknown: the shard is counted again then.
                self._lengths[shard.key] = self._lengths.get(shard.key, 0) - len(handles)
                shard.delete(handles)
                if not self._lengths[shard.key]:
                    self._oldest.pop(shard.key, None)

    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        values = [pack_dead(self.now_ms(), reason, each.entry.encode()) for each in kept]
        with self._translated_errors():
            self._client.rpush(self._slots.dead_key(), *values)
            self._dead_count += len(values)

    def _shard_of(self, topic: str) -> Layout:
        assert self._slots.own is not None
        shards = self._slots.shards(self._slots.own)
        return shards[murmur2(topic.encode()) % len(shards)]

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turns errors of Redis into BufferUnavailable; after each, the shards are counted again."""
        try:
            yield
        except HeadChanged as error:
            self._stale = True
            raise BufferUnavailable(f"buffer=redis key={error}: another drainer works on it") from error
        except ResponseError as error:
            self._stale = True
            raise BufferUnavailable(f"buffer=redis: {error}") from error
        except AWAY as error:
            self._away(error)
            raise BufferUnavailable(f"buffer=redis: {self._fault}") from error

    def _away(self, error: Exception) -> None:
        self._stale = self._broken = True
        if self._fault is None:
            limited.error("buffer=redis: %s: takes nothing until it answers again", error or type(error).__name__)
            self._look.set()
        self._fault = f"Redis does not answer: {error or type(error).__name__}"

    def _report_missing(self, shard: Layout, count: int) -> None:
        """Report entries that this proxy did not remove.

        Causes: FLUSHALL, an eviction, a fail-over that lost writes, or another drainer.
        """
        limited.error("buffer=redis key=%s: %d entries that were answered BUFFERED are gone", shard.key, count)
        self.damaged += count
        self._stale = True

    def _recount(self) -> None:
        """Count the entries of all own shards from Redis, and report those that are missing."""
        self._slots.forget()
        units, room = OrderingKeys(), self.room.emptied()
        known, lengths, oldest = self._lengths, dict[str, int](), dict[str, int]()
        for shard in self._slots.counted():
            last, seen = None, 0
            while values := shard.read(PAGE, last):
                last, seen = values[-1][0], seen + len(values)
                entries = [entry for entry in entries_of([value for _, value in values]) if entry is not None]
                if entries:
                    oldest.setdefault(shard.key, entries[0].accepted_at_ms)
                    units.enter(entries)
                    room.enter(entries)
            lengths[shard.key] = seen
            if seen < known.get(shard.key, 0):
                self._report_missing(shard, known[shard.key] - seen)
        for queued, _ in self._queue:
            units.enter(queued)
            room.enter(queued)
        # All at once: while Redis was read, keys stayed diverted by the old count.
        self.recounted(units, room)
        self._lengths, self._oldest, self._stale = lengths, oldest, False

    def _keep(self) -> None:
        while not self._closed:
            if self._look.wait(RETRY_S if self._fault else KEEP_S):
                self._look.clear()
                gevent.sleep(RETRY_S)
            try:
                self._check()
            except Exception:
                limited.exception("buffer=redis: internal error while checking it")

    def _check(self) -> None:
        """Check settings, slots and lengths. Called repeatedly, because each may change."""
        try:
            with self._mutex:
                if self._client is None or self._broken:
                    self._reconnect()
                weak = guard.weaknesses(self._client)
                self._warning = guard.warning(weak, self._accepted)
                reason = guard.refusal(weak, self._accepted)
                self._look_after_slots()
                if self._stale or self._lengths.keys() != {shard.key for shard in self._slots.counted()}:
                    self._recount()
                self._dead_count = self._client.llen(self._slots.dead_key())
            self._unfit = reason is not None
            if reason != self._fault:
                (limited.error if reason else limited.info)("buffer=redis: %s", reason or "takes messages")
            self._fault = reason
        except AWAY as error:
            self._unfit = False
            self._away(error)
        except (StoreUnavailable, NoSlot) as error:
            if self._slots.own is None:
                self._unfit, self._fault = False, str(error)

    def _reconnect(self) -> None:
        """Connect again: after an outage the master or the Cluster's nodes may be others."""
        if self._client is not None:
            with suppress(*AWAY):
                self._client.close()
        self._client = self._connect()
        self._slots.forget()
        self._broken, self._stale = False, True

    def _look_after_slots(self) -> None:
        slots = self._slots
        if not slots.writable():
            slots.claim_own()
            self._stale = True
        for slot in list(slots.adopted):
            if not any(self._lengths.get(shard.key) for shard in slots.shards(slot)) or slots.lost(slot):
                slots.release(slot)
                self._stale = True
        with suppress(StoreUnavailable):  # then no slot can be claimed now
            if slots.find_orphans(self._client):
                limited.warning("buffer=redis: drains slots %s of stopped proxies", sorted(slots.adopted))
                self._stale = True
