"""Starts of groups at `latest`, in the time of the engine that stores the messages.

The machine on which an operator sets `latest` notes the moment by its own clock. An engine whose clock is behind stamps
messages with earlier times, so those stored within the difference would count as older than the group. Therefore the
group begins at the latest when the engine last saw that the definition was not there. The log keeps this time where it
is earlier than the moment. A command ends after the engines have seen its change: what is stored after it is the group's.

Key of progress: b"\\0start " ‖ group. Value, big-endian: u64 the definition's moment ‖ u64 time of the engine's clock at
which the group begins.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from common.limited_log import LimitedLog
from engine.delivery.policy import GroupPolicy, Policies
from engine.errors import EngineError
from engine.log.port import ProgressLog

limited = LimitedLog(logging.getLogger("penstock.engine"))
KEY = b"\0start "
_VALUE = struct.Struct(">QQ")


class GroupStarts:
    """The policies of groups; those that begin at `latest` begin by this engine's clock.

    Args:
        wall_ms: the clock by which messages are stored.
    """

    def __init__(self, policies: Policies, store: ProgressLog, wall_ms: Callable[[], int]) -> None:
        self._policies, self._store, self._wall_ms = policies, store, wall_ms
        self._seen: Any = None
        self._generation = -1
        self._parts: Iterator[list[tuple[str, int]]] = iter(())
        self._began_ms = wall_ms()  # of the present round; at first, of the node, which has stored nothing before
        self._missing_ms = self._began_ms  # begin of the last whole round: what it did not find was not there
        self._unkept: dict[str, bytes] = {}  # on a full disk

    @property
    def generation(self) -> int:
        """Grows with each change."""
        return self._policies.generation

    def of(self, group: str) -> GroupPolicy:
        """Return the group's policy."""
        policy = self._policies.of(group)
        if not policy.is_from_now:
            return policy
        at_ms = self._start_ms(group, policy.start_at_ms)
        return policy if at_ms == policy.start_at_ms else replace(policy, start_at_ms=at_ms)

    @property
    def is_current(self) -> bool:
        """As the policies'."""
        return self._policies.is_current

    def latest_groups(self, seen: Any) -> tuple[Any, Iterator[list[tuple[str, int]]]]:
        """As the policies'."""
        return self._policies.latest_groups(seen)

    def step(self) -> None:
        """Look at some of the groups whose definitions have changed. Call it often: the time between calls counts."""
        part = next(self._parts, None)
        if part is None:
            self._missing_ms = self._began_ms
            if self._policies.is_current:
                self._began_ms = self._wall_ms()
            if self._generation == self._policies.generation:
                self._missing_ms = self._began_ms
                return
            self._generation = self._policies.generation
            self._seen, self._parts = self._policies.latest_groups(self._seen)
            part = next(self._parts, [])
        for group, set_ms in part:
            self._start_ms(group, set_ms)

    def _start_ms(self, group: str, set_ms: int) -> int:
        """When the group begins whose `latest` was set at `set_ms` by another clock."""
        key = KEY + group.encode()
        value = self._unkept.get(group) or next((value for raw, value in self._store.progress(key) if raw == key), b"")
        if len(value) == _VALUE.size and _VALUE.unpack(value)[0] == set_ms:
            return _VALUE.unpack(value)[1]
        if set_ms <= self._missing_ms:
            return set_ms
        value = self._unkept[group] = _VALUE.pack(set_ms, self._missing_ms)
        try:
            self._store.put_progress([(key, value)])
            del self._unkept[group]
        except EngineError as error:
            limited.warning("group=%s: its start is not stored in the log: %s", group, error)
        return self._missing_ms
