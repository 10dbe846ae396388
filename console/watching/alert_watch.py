"""From samples to alerts: pending, firing, resolved, and which of them people are told about."""

from dataclasses import replace

from common.clock import Clock
from console.database.action_log import Actor
from console.database.alert_states import FIRING, PENDING, AlertState, AlertStates
from console.errors import InvalidForm
from console.watching.alert_rules import (
    DEFAULTS,
    HOLD_S_MAX,
    NAMES,
    THRESHOLD_MAX,
    AlertRule,
    Measured,
    is_caused_by,
    measure,
)
from console.watching.figures import Sample

GOOD_MS = 60_000
"""An alert ends when its value has been good for so long: one that goes to and fro is one alert."""
LOST_MS = 3_600_000
"""And when nothing was measured for so long, as of a group that is gone."""


class AlertWatch:
    def __init__(self, states: AlertStates, clock: Clock) -> None:
        self._states, self._clock = states, clock
        self._seen_ms: dict[int, int] = {}

    def rules(self) -> list[AlertRule]:
        """All rules with the bounds in force."""
        bounds = self._states.bounds()
        return [replace(rule, **bounds.get(rule.name, {})) for rule in DEFAULTS]

    def change(self, actor: Actor, name: str, seen: int, threshold: float, hold_s: int, is_on: bool) -> None:
        """Set the bounds of a rule. Raises InvalidForm, RequestConflict."""
        old = next((rule for rule in self.rules() if rule.name == name), None)
        if old is None:
            raise InvalidForm({"rule": f"There is no rule {name[:40]}: use one of {', '.join(NAMES)}."})
        faults = {}
        if not 0 < threshold <= THRESHOLD_MAX:
            faults["threshold"] = "Use a number above 0."
        if not 0 <= hold_s <= HOLD_S_MAX:
            faults["hold_s"] = f"Use 0 to {HOLD_S_MAX:,} seconds."
        if faults:
            raise InvalidForm(faults)
        before = {"is_on": old.is_on, "threshold": old.threshold, "hold_s": old.hold_s}
        new = {"is_on": is_on, "threshold": threshold, "hold_s": hold_s}
        self._states.set_bounds(actor, name, seen, new, before)

    def look(self, sample: Sample) -> None:
        """Bring all alerts to what the sample says. A subject that it does not have keeps its alert as it is."""
        rules = {rule.name: rule for rule in self.rules() if rule.is_on}
        values = {(each.rule, each.subject): each for each in measure(sample) if each.rule in rules}
        alerts = self._states.open()
        known = {(alert.rule, alert.subject) for alert in alerts}
        for each in values.values():
            if each.value >= rules[each.rule].threshold and (each.rule, each.subject) not in known:
                self._states.begin(each.rule, each.subject, each.value, each.sentence)
        for alert in self._states.open():
            rule = rules.get(alert.rule)
            self._follow(alert, rule, values.get((alert.rule, alert.subject)))
        self._tell()

    def _follow(self, alert: AlertState, rule: AlertRule | None, now: Measured | None) -> None:
        now_ms = self._clock.now_ms()
        if rule is None:  # it was switched off
            self._end(alert)
        elif now is None:
            if now_ms - self._seen_ms.setdefault(alert.id, now_ms) > LOST_MS:
                self._end(alert)
        elif now.value >= rule.threshold:
            self._seen_ms[alert.id] = now_ms
            if alert.state == PENDING and now_ms - alert.began_ms >= rule.hold_s * 1000:
                self._states.fire(alert)
            elif alert.value != now.value or alert.good_since_ms is not None:
                self._states.note(alert, now.value, now.sentence, None)
        else:
            self._seen_ms[alert.id] = now_ms
            self._ease(alert, now, now_ms)

    def _ease(self, alert: AlertState, now: Measured, now_ms: int) -> None:
        if alert.state == PENDING:
            self._end(alert)
        elif alert.good_since_ms is None:
            self._states.note(alert, now.value, alert.sentence, now_ms)
        elif now_ms - alert.good_since_ms >= GOOD_MS:
            self._end(alert)

    def _end(self, alert: AlertState) -> None:
        self._seen_ms.pop(alert.id, None)
        (self._states.resolve if alert.state == FIRING else self._states.drop)(alert)

    def _tell(self) -> None:
        """Tell of firing alerts that nobody was told of, but those that are silenced or have the cause of another one.

        One that is silenced is told when the silence ends, if it still fires.
        """
        alerts = self._states.open()
        silences = self._states.silences()
        others = [(alert.rule, alert.subject) for alert in alerts]
        for alert in alerts:
            if alert.state != FIRING or alert.is_told or alert.good_since_ms is not None:
                continue
            is_silent = any(each.covers(alert.rule, alert.subject) for each in silences)
            if not is_silent and not is_caused_by(alert.rule, alert.subject, others):
                self._states.tell_firing(alert)


def shown_subject(subject: str) -> str:
    """`group:billing` in words."""
    kind, _, name = subject.partition(":")
    return f"{kind} {name}" if name else "the installation"
