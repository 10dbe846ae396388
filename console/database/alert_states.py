"""Alerts, the operators' bounds of rules, and silences. Each open alert is one row per rule and subject."""

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import alert_rules, alerts, silences
from console.errors import InvalidForm, RequestConflict

PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"
KEPT_MS = 30 * 86_400_000
SILENCE_MS_MAX = 30 * 86_400_000
SUBJECT = re.compile(r"[A-Za-z0-9._*:-]{1,300}")
REASON_CHARS_MAX = 300


@dataclass(frozen=True)
class AlertState:
    """An alert as stored. `good_since_ms`: from when on its value has been below the bound again."""

    id: int
    rule: str
    subject: str
    open_key: str | None
    state: str
    value: float
    sentence: str
    began_ms: int
    fired_ms: int | None
    good_since_ms: int | None
    resolved_ms: int | None
    is_told: bool


class AlertSilence(NamedTuple):
    """No notice is sent about matching alerts until it ends."""

    id: int
    rule: str
    subject: str
    reason: str
    who: str
    created_ms: int
    until_ms: int

    def covers(self, rule: str, subject: str) -> bool:
        return self.rule in ("*", rule) and fnmatch.fnmatchcase(subject, self.subject)


class AlertStates:
    """
    Args:
        tell: called with (connection, event, alert) in the transaction in which an alert fires or is resolved.
    """

    def __init__(
        self, database: ConsoleDatabase, log: ActionLog, clock: Clock, tell: Callable[[Connection, str, AlertState], None]
    ) -> None:  # fmt: skip
        self._database, self._log, self._clock, self._tell = database, log, clock, tell

    def open(self) -> list[AlertState]:
        """Alerts that are pending or firing, the latest first."""
        return self._list(select(alerts).where(alerts.c.open_key.is_not(None)).order_by(alerts.c.id.desc()))

    def resolved(self, limit: int = 50) -> list[AlertState]:
        """The latest ones that have ended."""
        return self._list(select(alerts).where(alerts.c.state == RESOLVED).order_by(alerts.c.id.desc()).limit(limit))

    def _list(self, wanted: Any) -> list[AlertState]:
        with self._database.read() as connection:
            return [AlertState(**row._mapping) for row in connection.execute(wanted)]

    def begin(self, rule: str, subject: str, value: float, sentence: str) -> None:
        """A pending alert, unless one is open: another console may have made it."""
        row = {"rule": rule, "subject": subject, "open_key": f"{rule} {subject}", "state": PENDING, "value": value}
        row |= {"sentence": sentence, "began_ms": self._clock.now_ms(), "is_told": False}
        try:
            with self._database.write() as connection:
                connection.execute(insert(alerts).values(**row))
        except IntegrityError:
            pass

    def drop(self, alert: AlertState) -> None:
        """Forget a pending alert whose value is good again before its time."""
        with self._database.write() as connection:
            connection.execute(delete(alerts).where(alerts.c.id == alert.id, alerts.c.state == PENDING))

    def note(self, alert: AlertState, value: float, sentence: str, good_since_ms: int | None) -> None:
        """The newest value of an open alert."""
        now = {"value": value, "sentence": sentence, "good_since_ms": good_since_ms}
        with self._database.write() as connection:
            connection.execute(update(alerts).where(_same(alert)).values(**now))

    def fire(self, alert: AlertState) -> None:
        """Pending → firing."""
        self._move(alert, {"state": FIRING, "fired_ms": self._clock.now_ms()})

    def tell_firing(self, alert: AlertState) -> None:
        """Send the notice that it fires, once."""
        with self._database.write() as connection:
            mine = (_same(alert), alerts.c.is_told.is_(False))
            if connection.execute(update(alerts).where(*mine).values(is_told=True)).rowcount == 1:
                self._tell(connection, "alert.firing", alert)

    def resolve(self, alert: AlertState) -> None:
        """Firing → resolved, with a notice where one has said that it fires."""
        with self._database.write() as connection:
            now = {"state": RESOLVED, "open_key": None, "resolved_ms": self._clock.now_ms()}
            if connection.execute(update(alerts).where(_same(alert)).values(**now)).rowcount == 1 and alert.is_told:
                self._tell(connection, "alert.resolved", alert)
            connection.execute(delete(alerts).where(alerts.c.resolved_ms < self._clock.now_ms() - KEPT_MS))

    def _move(self, alert: AlertState, now: dict[str, Any]) -> None:
        with self._database.write() as connection:
            connection.execute(update(alerts).where(_same(alert)).values(**now))

    def bounds(self) -> dict[str, dict[str, Any]]:
        """The settings that operators have changed, by rule: version, is_on, threshold, hold_s."""
        with self._database.read() as connection:
            rows = [dict(row._mapping) for row in connection.execute(select(alert_rules))]
        return {row.pop("name"): row for row in rows}

    def set_bounds(self, actor: Actor, name: str, seen: int, new: dict[str, Any], old: dict[str, Any]) -> None:
        """Set the bounds of a rule. Raises RequestConflict when they were changed since version `seen`."""
        try:
            with self._database.write() as connection:
                connection.execute(delete(alert_rules).where(alert_rules.c.name == name, alert_rules.c.version == seen))
                connection.execute(insert(alert_rules).values(name=name, version=seen + 1, **new))
                self._log.record(connection, actor, "change alert rule", f"alert rule {name}", old, new)
        except IntegrityError as error:
            raise RequestConflict("The rule was changed meanwhile: look at it again, then change it.") from error

    def silences(self) -> list[AlertSilence]:
        """Those that have not ended."""
        wanted = select(silences).where(silences.c.until_ms > self._clock.now_ms()).order_by(silences.c.until_ms)
        with self._database.read() as connection:
            return [AlertSilence(*row) for row in connection.execute(wanted)]

    def silence(
        self, actor: Actor, rule: str, subject: str, reason: str, duration_ms: int, rules: Sequence[str]
    ) -> int:
        """Silence matching alerts for a time, and return the silence's id. Raises InvalidForm."""
        faults = {}
        if rule != "*" and rule not in rules:
            faults["rule"] = f"Choose * or one of {', '.join(rules)}."
        if not SUBJECT.fullmatch(subject):
            faults["subject"] = "Use a subject such as group:billing or group:*, up to 300 characters."
        if not 1 <= len(reason) <= REASON_CHARS_MAX:
            faults["reason"] = f"Say why in 1 to {REASON_CHARS_MAX} characters."
        if not 60_000 <= duration_ms <= SILENCE_MS_MAX:
            faults["duration"] = "A silence ends after 1 minute to 30 days."
        if faults:
            raise InvalidForm(faults)
        now_ms = self._clock.now_ms()
        row = {"rule": rule, "subject": subject, "reason": reason, "who": actor.name, "created_ms": now_ms}
        row["until_ms"] = now_ms + duration_ms
        with self._database.write() as connection:
            connection.execute(delete(silences).where(silences.c.until_ms < now_ms - KEPT_MS))
            made = connection.execute(insert(silences).values(**row).returning(silences.c.id)).scalar_one()
            self._log.record(connection, actor, "silence alerts", f"silence {made}", None, row)
            return made

    def end_silence(self, actor: Actor, silence_id: int) -> None:
        """End a silence now."""
        now_ms = self._clock.now_ms()
        with self._database.write() as connection:
            own = (silences.c.id == silence_id, silences.c.until_ms > now_ms)
            if connection.execute(update(silences).where(*own).values(until_ms=now_ms)).rowcount:
                self._log.record(connection, actor, "end silence", f"silence {silence_id}")


def _same(alert: AlertState) -> Any:
    """The alert while it is still in this state: another console may have moved it."""
    return (alerts.c.id == alert.id) & (alerts.c.state == alert.state)
