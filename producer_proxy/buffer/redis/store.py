"""The buffer in Redis: durable when its write is answered, provided that Redis is as the guard demands.

Invariants:
1. Only the own slot is written to, in the order of the puts; each topic is always in the same shard.
2. After a failed call the shards are counted again before further entries are taken: `stale`.
3. The number of entries of each shard is known, so a FLUSHALL or an eviction is found and reported.
4. What the engine has is not taken again by this process, whether Redis deletes it or not.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import RLock
from redis.exceptions import OutOfMemoryError, ResponseError

from common.config.errors import StoreUnavailable
from common.config.store import ConfigStore
from common.limited_log import LimitedLog
from producer_proxy.buffer.blocks import pack_dead
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_, BufferFull, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.native import entries_of
from producer_proxy.buffer.redis import guard
from producer_proxy.buffer.redis.backlog_note import NO_NOTE, BacklogNote
from producer_proxy.buffer.redis.client import AWAY, MasterReplaced, MasterWatch, met_servers
from producer_proxy.buffer.redis.counts import ShardCounts
from producer_proxy.buffer.redis.layouts import LAYOUTS, HeadChanged, Layout, ShardValue
from producer_proxy.buffer.redis.puts import PutQueue
from producer_proxy.buffer.redis.slots import PARTS, PREFIX, BufferSlots, part_of
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry
from producer_proxy.buffer.value import pack_value

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

KEEP_S, RETRY_S = 2.0, 0.25


class RedisStore(BufferStore):
    """The store.

    Args:
        connect: makes the client; called again until it succeeds. layout: `streams` or `lists`. note: see BacklogNote.
        config: where slots are claimed. accepted: weaknesses of this Redis that the operator has allowed by name.
    Raises:
        BufferUnavailable: this Redis is not fit. An unreachable Redis is not an error: the store starts with a fault.
    """

    name = "redis"

    def __init__(
        self, connect: Callable[[], Any], layout: str, config: ConfigStore, limits: RoomLimits, now_ms: Callable[[], int],
        accepted: Collection[str] = (), prefix: str = PREFIX, note: BacklogNote = NO_NOTE,
    ) -> None:  # fmt: skip
        super().__init__(limits, now_ms)
        self._note, self._awaited = note, frozenset(range(PARTS) if note.is_set else ())
        self._connect, self._accepted = connect, accepted
        self._client: Any = None
        self._slots = BufferSlots(config, prefix, lambda key: LAYOUTS[layout](self._client, key))
        self._counts = ShardCounts(self._count_damaged)
        self._broken, self._met = False, 0
        self._mutex = RLock()
        self._puts = PutQueue(self._mutex, self._push_or_fail, self._leave_failed)
        self._fault: str | None = "Redis has not answered yet"
        self._weakness: str | None = None  # that is not allowed: nothing more is stored, and a start is refused
        self._drains = False  # also with a fault, as long as Redis answers reads
        self._warning: str | None = None
        self._dead_count, self._closed, self._look = 0, False, Event()
        self._check()
        if self._weakness:
            raise BufferUnavailable(f"buffer=redis: {self._fault}")
        self._keeper, self._watch = gevent.spawn(self._keep), MasterWatch(lambda: self._client, self._away)

    def fault(self) -> str | None:
        return self._fault

    @property
    def dead_count(self) -> int:
        return self._dead_count

    def warning(self) -> str | None:
        return self._warning

    def oldest_at_ms(self) -> int | None:
        return min(self._counts.oldest.values(), default=None)

    def awaits(self, topic: str) -> bool:
        return bool(self._awaited) and part_of(topic) in self._awaited

    @property
    def undeleted(self) -> int:
        return len(self._counts.undeleted)

    def close(self) -> None:
        self._closed = True
        self._keeper.kill()
        self._watch.close()
        with suppress(StoreUnavailable):
            self._slots.close()
        if self._client is not None:
            self._client.close()

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        if self._client is None or not self._drains:
            return []
        with self._mutex, self._translated_errors():
            self._look_at_server()
            if self._counts.stale:
                self._recount()
            for shard in self._slots.drainable():
                taken = self._take_from(shard, skip, count_max, bytes_max)
                if self._look_at_server():
                    break  # what was taken is of another server, and the engine may have it
                if taken:
                    return taken
            if self._counts.stale:  # a shard has nothing where entries were counted
                self._recount()
        return []

    def _look_at_server(self) -> bool:
        """Have the shards counted again when connections lead to another server; returns whether they do since the last look."""
        met, self._met = self._met, met_servers(self._client)
        self._counts.stale |= met != self._met
        return met != self._met

    def _take_from(self, shard: Layout, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        if self._counts.waiting(shard) <= 0:
            return []
        typical = max(1, self.room.bytes // max(1, self.room.entries))
        taken: list[KeptEntry] = []
        is_first = True
        for waiting in self._counts.pages(shard, max(1, min(count_max, bytes_max // typical))):
            for handle, entry in self._entries(shard, waiting):
                if is_first:
                    self._counts.oldest[shard.key], is_first = entry.accepted_at_ms, False
                if entry.topic in skip and shard.passes_over:
                    continue
                bytes_max -= entry.size_bytes
                if entry.topic in skip or len(taken) == count_max or (taken and bytes_max < 0):
                    return taken
                taken.append(KeptEntry(handle, entry))
            if taken:
                break
        return taken

    def _entries(self, shard: Layout, values: Sequence[tuple[Any, bytes]]) -> list[tuple[ShardValue, BufferEntry]]:
        """The whole entries; foreign and damaged values are moved to the dead-letter list as they are."""
        found: list[tuple[ShardValue, BufferEntry]] = []
        odd: list[ShardValue] = []
        for (position, value), entry in zip(values, entries_of([value for _, value in values]), strict=True):
            handle = ShardValue(shard, position, value)
            if entry is None:
                odd.append(handle)
            else:
                found.append((handle, entry))
        if odd:
            self._set_aside(shard, odd)
        return found

    def _set_aside(self, shard: Layout, odd: Sequence[ShardValue]) -> None:
        """Move values that are no entries to the dead-letter list. While Redis refuses that, they stay where they are."""
        try:
            self._client.rpush(self._slots.dead_key(), *(each.value for each in odd))
        except ResponseError as error:
            limited.error("buffer=redis key=%s: %d foreign or damaged values: %s", shard.key, len(odd), error)
            return
        limited.error(
            "buffer=redis key=%s: %d foreign or damaged values are moved to %s",
            shard.key, len(odd), self._slots.dead_key(),
        )  # fmt: skip
        self.damaged += len(odd)
        self._delete_from(shard, odd)

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        if self._fault:
            self._leave(entries)
            raise BufferUnavailable(f"buffer=redis: {self._fault}")
        self._puts.put(entries)

    def _leave_unwritten(self, entries: Sequence[BufferEntry]) -> None:
        """Does nothing: `_write` or the flush has already left the keys. They may have been counted again since."""

    def _leave_failed(self, entries: Sequence[BufferEntry], is_partly_stored: bool) -> None:
        self._leave(entries)
        self._counts.stale = self._counts.stale or is_partly_stored

    def _push_or_fail(self, entries: list[BufferEntry]) -> dict[str, BufferError_]:
        """As `_push`. Whatever fails there, each put gets an answer."""
        try:
            return self._push(entries)
        except Exception as error:
            limited.exception("buffer=redis: internal error while storing")
            self._counts.stale = True
            unknown = BufferUncertain(f"buffer=redis: internal error: {error!r}")
            return dict.fromkeys((entry.topic for entry in entries), unknown)

    def _push(self, entries: list[BufferEntry]) -> dict[str, BufferError_]:
        """Append to the own slot; returns errors by topic."""
        if not self._slots.writable():
            return dict.fromkeys(
                (entry.topic for entry in entries), BufferUnavailable("buffer=redis: its slot was lost")
            )
        assert self._slots.own is not None
        self._note.set(self._slots.own)
        by_shard: dict[Layout, list[BufferEntry]] = {}
        for entry in entries:
            by_shard.setdefault(self._slots.shard_of(entry.topic), []).append(entry)
        try:
            pipe = self._client.pipeline(transaction=False)
            values = {shard: list(map(pack_value, own)) for shard, own in by_shard.items()}
            steps = [(shard, own, shard.push(pipe, values[shard])) for shard, own in by_shard.items()]
            answers = self._watch.confirmed(pipe.execute(raise_on_error=False))
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
                self._counts.put(shard, own, values[shard], step[-1])
        return errors

    def _understood(self, error: Exception, partly: bool) -> BufferError_:
        text = f"buffer=redis: {error}"
        if not isinstance(error, ResponseError):
            self._away(error)
            return BufferUncertain(text)
        if partly:
            self._counts.stale = True
            return BufferUncertain(text)
        return BufferFull(text) if isinstance(error, OutOfMemoryError) else BufferUnavailable(text)

    def _delete(self, kept: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
        by_shard: dict[Layout, list[KeptEntry]] = {}
        for each in kept:
            by_shard.setdefault(each.handle.shard, []).append(each)
        with self._mutex:
            return [
                each
                for shard, own in by_shard.items()
                if self._delete_from(shard, [each.handle for each in own])
                for each in own
            ]

    def _delete_from(self, shard: Layout, handles: Sequence[ShardValue]) -> bool:
        """Delete values of one shard. Those that Redis refuses to delete, or may have deleted, are not taken again.

        Returns whether they leave the count at once; otherwise the shards are counted again.
        """
        counts = self._counts
        try:
            if not counts.undeleted.count(shard.key):
                shard.delete([each.position for each in handles])
                counts.deleted(shard, [each.value for each in handles])
                return True
        except HeadChanged as error:
            counts.stale = True
            limited.warning("buffer=redis key=%s: another drainer works on it", error)
        except ResponseError as error:
            self._refuses(error)
        except AWAY as error:
            self._away(error)
        counts.keep_undeleted(shard, [each.value for each in handles])
        # A count after they were taken may have met other values.
        counts.stale = counts.stale or not any(each is shard for each in self._slots.counted())
        return not counts.stale

    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        values = [pack_dead(self.now_ms(), reason, each.entry.encode()) for each in kept]
        with self._translated_errors():
            self._client.rpush(self._slots.dead_key(), *values)
            self._dead_count += len(values)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turns errors of Redis into BufferUnavailable; after each, the shards are counted again."""
        try:
            yield
        except ResponseError as error:
            self._counts.stale = True
            raise BufferUnavailable(f"buffer=redis: {error}") from error
        except AWAY as error:
            self._away(error)
            raise BufferUnavailable(f"buffer=redis: {self._fault}") from error

    def _away(self, error: Exception) -> None:
        self._counts.stale = self._broken = True
        self._drains = False
        if self._fault is None:
            limited.error("buffer=redis: %s: takes nothing until it answers again", error or type(error).__name__)
            self._look.set()
        answers = isinstance(error, MasterReplaced)
        self._fault = str(error) if answers else f"Redis does not answer: {error or type(error).__name__}"

    def _refuses(self, error: Exception) -> None:
        if self._fault is None:
            limited.error("buffer=redis: %s: what the engine has is deleted later", guard.refuses_deletions(error))
            self._look.set()
        self._fault = self._fault or guard.refuses_deletions(error)

    def _count_damaged(self, count: int) -> None:
        self.damaged += count

    def _recount(self) -> None:
        """Count the entries of all own shards from Redis, and report those that are missing."""
        self._slots.forget()
        room = self.room.emptied()
        keys = self._counts.count_again(self._slots.counted(), room)
        for queued in self._puts.waiting():
            keys.enter(queued)
            room.enter(queued)
        # All at once: while Redis was read, keys stayed diverted by the old count.
        self.recounted(keys, room)
        self._counts.stale = False

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
        """Check settings, slots, lengths and deletion. Called repeatedly, because each may change."""
        try:
            with self._mutex:
                if self._client is None or self._broken:
                    self._reconnect()
                weak, other = guard.weaknesses(self._client), self._slots.other_owner(self._client)
                self._warning = guard.warning(weak, self._accepted)
                self._weakness = other or guard.refusal(weak, self._accepted)
                self._drains = other is None
                refused = self._check_entries() if self._drains else other
            reason = self._weakness or refused or self._delete_again()
            if reason != self._fault:
                (limited.error if reason else limited.info)("buffer=redis: %s", reason or "takes messages")
            self._fault = reason
        except AWAY as error:
            self._away(error)
        except StoreUnavailable as error:
            if self._slots.own is None:
                self._fault = str(error)

    def _check_entries(self) -> str | None:
        """Look after slots and counts. Returns why nothing can be stored, or why Redis deletes nothing."""
        self._counts.stale |= self._slots.look_after(self._client, self._counts.lengths)
        self._look_at_server()
        self.damaged += self._note.meets_another(self._slots.redis_id(self._client))
        awaited = self._note.parts_of(self._slots.elsewhere)
        self._await(self._awaited | awaited)  # fewer only once the slots that are drained here are counted
        if self._counts.stale or self._counts.lengths.keys() != {shard.key for shard in self._slots.counted()}:
            self._recount()
        self._await(awaited)
        self._note.keep(self._slots.ours() if self.room.entries else (), self._slots.elsewhere)
        self._dead_count = self._client.llen(self._slots.dead_key())
        return self._slots.missing or guard.refused_deletion(self._slots.counted())

    def _await(self, parts: frozenset[int]) -> None:
        ended, self._awaited = self._awaited - parts, parts
        if ended:
            self.on_known()

    def _delete_again(self) -> str | None:
        """Delete what Redis has refused to delete before. Returns why it refuses; None: all is deleted.

        Raises errors of AWAY.
        """
        for shard in self._slots.counted():
            try:
                while self._counts.undeleted.count(shard.key):
                    with self._mutex:  # puts and the drain go on between two pages
                        if not self._counts.delete_page(shard):
                            break
            except HeadChanged:
                self._counts.stale = True
            except ResponseError as error:
                return guard.refuses_deletions(error)
        return None

    def _reconnect(self) -> None:
        """Connect again: after an outage the master or the Cluster's nodes may be others."""
        if self._client is not None:
            with suppress(*AWAY):
                self._client.close()
        self._client = self._connect()
        self._slots.forget()
        self._broken, self._counts.stale = False, True
