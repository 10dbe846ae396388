"""Upkeep of groups: idle ones leave memory, and those that are not used leave the log.

An idle group is unloaded, because its progress is in the log: its next pull loads it again. A group that has neither
acknowledged nor leased anything leaves no trace. Groups without a definition whose last use is longer ago than the
expiry are forgotten with their progress; they would begin at the earliest message again. Progress in topics that were
made again is removed.

Time in use is counted in hours that the engine has run, so no step of a clock expires anything. Keys of progress:
b"\0hours" → hours so far; b"\0used" ‖ group → hours at the last use. Values are u32, big-endian.
"""

import logging
from collections.abc import Callable, Iterator

from common.limited_log import LimitedLog
from engine.delivery import filters, group_starts, progress
from engine.delivery.creations import GROUP, Creations
from engine.delivery.group import Group
from engine.delivery.lost_turns import LostTurns
from engine.delivery.policy import DEFAULT, Policies
from engine.errors import EngineError
from engine.log.port import DeliveryLog

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)

STEP_MS = 100
ROUND_MS = 1_000
"""Pause between two rounds."""
GROUPS_PER_STEP = 200
"""Groups looked at per step: about a millisecond."""
IDLE_MS = 600_000
"""Time without a pull after which a group is unloaded."""
CROWDED_IDLE_MS = 1_000
"""The same while more cursors are loaded than CURSORS_MAX."""
CURSORS_MAX = 200_000
"""Some 800 bytes each."""
HOUR_MS = 3_600_000
REPLACED_MAX = 10_000
"""Keys that are removed at once; the others wait for the next round."""
_HOURS = b"\0hours"
_USED = b"\0used"


class GroupUpkeep:
    """Goes round all groups in small steps.

    Args:
        groups: the loaded groups; idle ones are removed.
        unload: removes a group from memory; False when it has something to do.
        creations: counts the groups per application.
        expire_hours: 0: no group expires.
        lost_turns: looks at a few cursors with each step.
    """

    def __init__(
        self, store: DeliveryLog, policies: Policies, groups: dict[str, Group], unload: Callable[[Group], bool],
        creations: Creations, expire_hours: int, lost_turns: LostTurns,
    ) -> None:  # fmt: skip
        self._store, self._policies, self._groups, self._unload = store, policies, groups, unload
        self._creations, self.expire_hours, self.lost_turns = creations, expire_hours, lost_turns
        self.unloaded = self.expired = 0
        self._hours = self._number(_HOURS)
        self._hour_since_ms: int | None = None
        self._round: Iterator[Group] = iter(())
        self._names: Iterator[str] = iter(())
        self._cursors = self._counted = 0
        self._replaced: list[bytes] = []  # keys of progress in topics that were made again

    @property
    def hours(self) -> int:
        """Hours that the engine has run."""
        return self._hours

    def step(self, now_ms: int) -> int:
        """Do a small piece of work; returns the time of the next call."""
        self.lost_turns.step(now_ms)
        try:
            return self._step(now_ms)
        except EngineError as error:
            self._names = iter(())  # a full disk: the next hour's round goes through all groups again
            limited.warning("groups are not looked through for unused ones this hour: %s", error)
            return now_ms + ROUND_MS

    def _step(self, now_ms: int) -> int:
        self._count_hours(now_ms)
        idle_ms = CROWDED_IDLE_MS if max(self._cursors, self._counted) > CURSORS_MAX else IDLE_MS
        for _ in range(GROUPS_PER_STEP):
            group = next(self._round, None)
            if group is None:
                self._cursors, self._counted = self._counted, 0
                self._round = iter(list(self._groups.values()))
                self._expire_some()
                return now_ms + ROUND_MS
            self._counted += 1 + group.cursor_count
            if now_ms - group.used_ms >= idle_ms and self._groups.get(group.name) is group and self._unload(group):
                self.unloaded += 1
        self._expire_some()
        return now_ms + STEP_MS

    def unused(self, hours: int) -> Iterator[str]:
        """Groups with progress, without a definition, that were not used for as many hours of running."""
        for name in self._kept():
            used = self._number(_USED + name.encode())
            if used and self._hours + 1 - used >= hours and self._is_forgettable(name):
                yield name

    def forget(self, name: str) -> int:
        """Delete all that the log keeps of a group that is not loaded; returns its number of queues with progress."""
        kept = [raw for raw, _ in self._store.progress(progress.group_prefix(name))]
        others = filters.key(name), _USED + name.encode(), group_starts.KEY + name.encode()
        self._store.put_progress([(raw, b"") for raw in (*kept, *others)])
        self._creations.forget(GROUP, name)
        return len(kept)

    def _is_forgettable(self, name: str) -> bool:
        return name not in self._groups and self._policies.of(name) is DEFAULT

    def _count_hours(self, now_ms: int) -> None:
        self._hour_since_ms = self._hour_since_ms if self._hour_since_ms is not None else now_ms
        if now_ms - self._hour_since_ms >= HOUR_MS:
            self._hour_since_ms = now_ms
            self._hours += 1
            self._store.put_progress([(_HOURS, _u32(self._hours))])
            self._names = self._kept()

    def _expire_some(self) -> None:
        """Go through the groups of the log, once per hour of running: note uses, forget the unused."""
        for _ in range(GROUPS_PER_STEP):
            name = next(self._names, None)
            self._drop_replaced()
            if name is None:
                return
            policy = self._policies.of(name)
            if policy is not DEFAULT and not policy.unread:
                self._creations.forget(GROUP, name)  # it has a definition now
            if not self.expire_hours:
                continue
            used = self._number(_USED + name.encode())
            if not used or name in self._groups:
                self._store.put_progress([(_USED + name.encode(), _u32(self._hours + 1))])
            elif self._hours + 1 - used >= self.expire_hours and self._is_forgettable(name):
                queues = self.forget(name)
                self.expired += 1
                log.info("group=%s: forgotten: unused for %d hours, progress in %d queues", name, self._hours, queues)

    def _kept(self) -> Iterator[str]:
        """Names of the groups with progress in the log, once each; notes the progress in topics that were made again."""
        last, last_id, is_current = None, 0, True
        for raw, _ in self._store.progress(b"g"):
            parts = progress.split_key(raw)
            if parts is None:
                continue
            if parts[1] != last_id:
                last_id, is_current = parts[1], self._is_current(parts[1])
            if not is_current and len(self._replaced) < REPLACED_MAX:
                self._replaced.append(raw)
            if parts[0] != last:
                last = parts[0]
                yield last

    def _is_current(self, topic_id: int) -> bool:
        """Whether the topic of that id has its name still."""
        topic = self._store.topic_by_id(topic_id)
        found = None if topic is None else self._store.topic(topic.name)
        return found is not None and found.id == topic_id

    def _drop_replaced(self) -> None:
        if self._replaced:
            self._store.put_progress([(raw, b"") for raw in self._replaced])
            self._replaced.clear()

    def _number(self, key: bytes) -> int:
        raw, value = next(self._store.progress(key), (b"", b""))
        return int.from_bytes(value, "big") if raw == key else 0


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "big")
