"""Alerts: those that are open and the latest that have ended, the rules' bounds, and silences."""

from collections.abc import Mapping

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said
from console.watching.alert_rules import NAMES, is_caused_by
from console.watching.alert_watch import shown_subject

HOUR_MS = 3_600_000
DURATIONS = (("1", "1 hour"), ("4", "4 hours"), ("24", "1 day"), ("168", "7 days"), ("720", "30 days"))


@page("/alerts", role=Role.VIEWER, title="Alerts", menu=8)
def index() -> ResponseReturnValue:
    """The page."""
    return _page({})


def _page(faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    states, silences = parts().alerts, parts().alerts.silences()
    opened = states.open()
    others = [(alert.rule, alert.subject) for alert in opened]
    rows = [
        {
            "alert": alert, "subject": shown_subject(alert.subject), "path": path_of(alert.subject),
            "is_silent": any(each.covers(alert.rule, alert.subject) for each in silences),
            "is_caused": is_caused_by(alert.rule, alert.subject, others),
        }
        for alert in sorted(opened, key=lambda each: (each.state != "firing", -each.id))
    ]  # fmt: skip
    ended = [
        {"alert": each, "subject": shown_subject(each.subject), "path": path_of(each.subject)}
        for each in states.resolved()
    ]
    page = render_template(
        "watching/alerts.html", rows=rows, ended=ended, silences=silences, rules=parts().alert_watch.rules(), faults=faults,
        values=form(), rule_choices=[("*", "every rule"), *((name, name) for name in NAMES)], durations=DURATIONS,
    )  # fmt: skip
    return page, status


def path_of(subject: str) -> str:
    """The page that shows more about a subject."""
    kind, _, name = subject.partition(":")
    return f"/groups/{name}" if kind == "group" else f"/topics/{name}" if kind == "topic" else "/map"


@action("/alerts/rules/<name>", role=Role.OPERATOR, said="The rule is saved.")
def change_rule(name: str) -> ResponseReturnValue:
    """Set the bounds of a rule, unless another person was faster."""
    fields = form()
    try:
        threshold, hold_s = _number(fields.get("threshold", "")), _number(fields.get("hold_s", ""))
        seen = _number(fields.get("version", ""))
        parts().alert_watch.change(actor(), name, int(seen), threshold, int(hold_s), fields.get("is_on") == "on")
    except InvalidForm as error:
        return _page({"": f"Rule {name[:40]}: {error}"}, 422)
    return redirect(with_said("/alerts", "#rules"), 303)


@action("/alerts/silences", role=Role.OPERATOR, said="The alerts are silenced. They are still shown here.")
def silence() -> ResponseReturnValue:
    """Silence alerts for a time."""
    fields = form()
    try:
        hours = _number(fields.get("hours", ""))
        reason, subject = fields.get("reason", "").strip(), fields.get("subject", "").strip()
        rule, duration_ms = fields.get("rule", ""), int(hours * HOUR_MS)
        parts().alerts.silence(actor(), rule, subject, reason, duration_ms, NAMES)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return redirect(with_said("/alerts", "#silences"), 303)


@action("/alerts/silences/<int:silence_id>/end", role=Role.OPERATOR)
def end_silence(silence_id: int) -> ResponseReturnValue:
    """End a silence now."""
    parts().alerts.end_silence(actor(), silence_id)
    return redirect("/alerts#silences", 303)


def _number(text: str) -> float:
    """A number of a form; -1, which no bound allows, for anything else."""
    plain = text.strip().replace(",", "")
    is_number = plain.isascii() and plain.replace(".", "", 1).isdigit() and len(plain) <= 16
    return float(plain) if is_number else -1.0
