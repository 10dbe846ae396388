"""Records of the engines that hold the broker groups' messages: each group's log, and how far it was seen durable.

A process compares an engine's greeting with the record before it uses the engine. So an engine of another group, with
an empty directory, another log or an older copy of its own log is refused until an operator accepts it. Proxies that may
change the configuration record an engine when they connect; an engine with a configuration records its own position
every few seconds.
"""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from common.clock import Clock
from common.config.errors import AccessDenied, ConfigError, VersionConflict
from common.config.store import ConfigStore
from common.limited_log import LimitedLog

KIND = "engine"
STORE_WAIT_S = 0.25
"""Time for the store where the record that was read last, and the record of the group's controllers, allow the engine. The
store stands for seconds while ZooKeeper elects a leader, often because the machine of the earlier master has died."""
limited = LimitedLog(logging.getLogger("penstock.config"))


class Greeting(Protocol):
    """Identity that an engine gives of itself; see engine/client/dial.py."""

    @property
    def broker_group(self) -> str: ...
    @property
    def log_id(self) -> str: ...
    @property
    def epoch(self) -> str: ...
    @property
    def end_position(self) -> int: ...
    @property
    def durable_position(self) -> int: ...
    @property
    def term(self) -> int: ...


class EngineRecord(NamedTuple):
    """The engine of one broker group.

    Attributes:
        position: up to which its log was durable, at least.
        epoch: of its start, when it was recorded.
    """

    log_id: str
    position: int
    epoch: str
    at_ms: int


class EngineRecords:
    """The records in the store, with those read last for the time in which the store is away."""

    def __init__(self, store: ConfigStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, EngineRecord] = {}
        self.refusals: dict[str, str] = {}

    def admits(self, group: str | None, found: Greeting) -> str | None:
        """Check an engine and record it; the reason to refuse it, or None. May block for the store.

        The next master of a group with replicas is waited for by callers: it has STORE_WAIT_S of the store's time.

        Args:
            group: the broker group to which the configuration gives the engine's address; None: any.
        """
        known = self._known.get(group or found.broker_group)
        if not found.term or known is None or known.log_id != found.log_id or group not in (None, found.broker_group):
            return self._admits(group, found)
        answers: list[str | None] = []
        asking = threading.Thread(target=lambda: answers.append(self._admits(group, found)), daemon=True)
        asking.start()
        asking.join(STORE_WAIT_S)
        return answers[0] if answers else None

    def _admits(self, group: str | None, found: Greeting) -> str | None:
        name = group or found.broker_group
        if group is not None and found.broker_group != group:
            refusal: str | None = (
                f"broker group {group}: at its address answers the engine of broker group {found.broker_group}: "
                f"correct the address with `penstock broker-group set {group} HOST:PORT`"
            )
        else:
            record = self.read(name)
            refusal = None if record is None else _refusal(name, record, found)
        if refusal is None:
            self.refusals.pop(name, None)
            self.note(name, found.log_id, found.durable_position, found.epoch)
        else:
            self.refusals[name] = refusal
        return refusal

    def read(self, group: str) -> EngineRecord | None:
        """The record; the last known one while the store cannot be read, None where there is none."""
        if self._store.unavailable_since_ms is None:
            try:
                found = self._store.get(KIND, group)
                if found is None:
                    self._known.pop(group, None)
                else:
                    value = found.value
                    self._known[group] = EngineRecord(
                        value["log_id"], value["position"], value.get("epoch", ""), value["at_ms"]
                    )
            except (ConfigError, KeyError, TypeError) as error:
                limited.warning("broker_group=%s: the record of its engine cannot be read: %s", group, error)
        return self._known.get(group)

    def note(self, group: str, log_id: str, position: int, epoch: str = "") -> None:
        """Record an engine, unless the record is of another log or already as far. A failure is only logged.

        Args:
            epoch: empty: that of the record stays.
        """

        def new(old: EngineRecord | None) -> EngineRecord | None:
            if old is None:
                return EngineRecord(log_id, position, epoch, self._clock.now_ms())
            start = epoch or old.epoch
            if old.log_id != log_id or (old.position >= position and old.epoch == start):
                return None
            return EngineRecord(log_id, max(position, old.position), start, self._clock.now_ms())

        self._write(group, new)

    def accept(self, group: str, found: Greeting) -> EngineRecord:
        """Make an engine the group's own whatever the record says: for an operator. Raises ConfigError."""
        made = EngineRecord(found.log_id, found.durable_position, found.epoch, self._clock.now_ms())
        present = self._store.get(KIND, group)
        self._store.put(KIND, group, made._asdict(), present.version if present else 0)
        return made

    def _write(self, group: str, new: Callable[[EngineRecord | None], EngineRecord | None]) -> None:
        if self._store.unavailable_since_ms is not None:
            return
        try:
            present = self._store.get(KIND, group)
            made = new(None if present is None else EngineRecord(**present.value))
            if made is not None:
                self._store.put(KIND, group, made._asdict(), present.version if present else 0)
                self._known[group] = made
        except (VersionConflict, AccessDenied):
            return  # another process has just recorded it, or this one is a proxy that may not: engines record themselves
        except (ConfigError, TypeError) as error:
            limited.warning("broker_group=%s: its engine cannot be recorded: %s", group, error)


def _refusal(group: str, record: EngineRecord, found: Greeting) -> str | None:
    accept = f"start the right one, or accept it with `penstock broker-group accept {group}`"
    if found.log_id != record.log_id:
        return (
            f"broker group {group}: the engine has log {found.log_id}, but the messages are in log {record.log_id}, "
            f"{record.position:,} bytes: it is another engine or has an empty directory: {accept}"
        )
    # Of a group with replicas, the controller's record says which logs are old copies.
    if found.epoch and not found.term and found.end_position < record.position:
        return (
            f"broker group {group}: the engine's log ends at {found.end_position:,}, but {record.position:,} bytes of it "
            f"were durable: it is an older copy: {accept}"
        )
    return None
