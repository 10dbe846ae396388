"""Operations for `penstock pipeline traffic`: what the proxies refused, and the minutes that a report has measured."""

import math
from collections.abc import Mapping
from typing import Any

from flask import request
from sqlalchemy.exc import IntegrityError
from werkzeug.exceptions import BadRequest

from common.contract import Code
from common.names import is_name
from console.api.operations import ANY, TEXT, WHOLE, body, number_of_query, operation
from console.database.reported_minutes import CHUNK_S, MESSAGES, MINUTES, REPORTED
from console.database.series_history import COARSE_KEPT_S, COARSE_S, FINE_KEPT_S, REPORTED_S, SeriesKey, Steps
from console.errors import RequestConflict
from console.parts import actor, parts
from console.roles import Role
from console.watching.figures import REFUSED

CHUNKS_MAX, POINTS_MAX = 50, 50_000
VALUE_MAX = 1e15


@operation("GET", "/refused", Role.VIEWER, "Messages to a topic that the proxies refused, by application and code, over time.",
           {"topic": TEXT, "begin_s": WHOLE, "end_s": WHOLE})  # fmt: skip
def refused() -> Any:
    """Rows without an application are of all; "" are callers without a valid credential. Steps without one are left out."""
    topic, now_s = request.args.get("topic", ""), parts().clock.now_ms() // 1000
    if not is_name(topic):
        raise BadRequest("topic: use the name of a topic.")
    begin_s, end_s = number_of_query("begin_s", now_s - 3_600, 1 << 40), number_of_query("end_s", now_s, 1 << 40)
    begin_s, end_s = max(begin_s, now_s - COARSE_KEPT_S), min(end_s, now_s)
    if begin_s >= end_s:
        return {"step_s": REPORTED_S, "begin_s": begin_s, "refused": []}
    prefix, subject = f"sender:{topic}/", f"topic:{topic}"
    known = {
        *(SeriesKey(subject, name) for name in parts().history.names(subject)), *parts().history.keys(prefix),
        *(key for key in parts().sampler.running() if key.subject == subject or key.subject.startswith(prefix)),
    }  # fmt: skip
    keys = sorted(key for key in known if key.name.startswith(REFUSED))
    # Points of 10 s are kept for a day only: a longer range is read in steps of 10 minutes.
    from_s = begin_s if begin_s >= now_s - FINE_KEPT_S + COARSE_S else min(begin_s, end_s - FINE_KEPT_S - COARSE_S)
    step_s, found = parts().sampler.read(keys, from_s, end_s)
    from_s -= from_s % step_s
    shown_s = max(step_s, REPORTED_S)
    rows = []
    for key in keys:
        points = _summed(found[key].means, from_s, step_s, shown_s, begin_s)
        if points:
            rows.append(_row(key, prefix, points))
    if sum(len(row["points"]) for row in rows) > POINTS_MAX:
        raise BadRequest("The range has too many points: ask for a shorter one.")
    return {"step_s": shown_s, "begin_s": begin_s, "refused": rows}


def _row(key: SeriesKey, prefix: str, points: list[tuple[int, float]]) -> dict[str, Any]:
    code = int(key.name.removeprefix(REFUSED))
    return {
        "application": key.subject.removeprefix(prefix) if key.subject.startswith(prefix) else None,
        "code": code, "name": Code._VALUES_TO_NAMES.get(code, str(code)),
        "messages": round(sum(count for _, count in points)), "points": points,
    }  # fmt: skip


def _summed(rates: Steps, from_s: int, step_s: int, shown_s: int, begin_s: int) -> list[tuple[int, float]]:
    """Messages by the time of their step, where there are any."""
    counts: dict[int, float] = {}
    for at, rate in enumerate(rates):
        at_s = from_s + at * step_s
        if rate and not math.isnan(rate) and at_s + step_s > begin_s:
            counts[at_s - at_s % shown_s] = counts.get(at_s - at_s % shown_s, 0.0) + rate * step_s
    return [(at_s, round(count, 1)) for at_s, count in counts.items()]


@operation("POST", "/traffic", Role.OPERATOR,
           f"Give minutes of topics that a report has measured to the history: up to {CHUNKS_MAX} chunks of 6 hours.",
           body={"chunks": {"type": "array", "items": ANY}}, required=["chunks"])  # fmt: skip
def report_traffic() -> Any:
    """The same chunk may come again: a minute is replaced only by one with more messages."""
    chunks = body().get("chunks")
    if not isinstance(chunks, list) or not 1 <= len(chunks) <= CHUNKS_MAX:
        raise BadRequest(f"chunks: use a list of 1 to {CHUNKS_MAX}.")
    now_s = parts().clock.now_ms() // 1000
    read = [_chunk(number, each, now_s) for number, each in enumerate(chunks)]
    kept = [each for each in read if each[1] > now_s - COARSE_KEPT_S]
    try:
        taken = sum(parts().sampler.reported.add(*each) for each in kept)
    except IntegrityError as error:
        raise RequestConflict("Another report of the same topic was faster: send it again.") from error
    if taken:
        topics = sorted({each[0] for each in kept})
        parts().log.note(actor(), "report traffic", f"{len(topics)} topics", None, {"topics": topics, "minutes": taken})
    return {"minutes": taken}


def _chunk(number: int, given: Any, now_s: int) -> tuple[str, int, dict[str, list[float]]]:
    """(topic, begin, figures) of one chunk. Raises BadRequest."""
    what = f"chunks[{number}]"
    if not isinstance(given, dict) or given.keys() != {"topic", "begin_s", *REPORTED}:
        raise BadRequest(f"{what}: use an object of topic, begin_s, {', '.join(REPORTED)}.")
    topic, begin_s = given["topic"], given["begin_s"]
    if not isinstance(topic, str) or not is_name(topic):
        raise BadRequest(f"{what}: topic: use the name of a topic.")
    if not isinstance(begin_s, int) or isinstance(begin_s, bool) or begin_s % CHUNK_S or not 0 <= begin_s <= now_s:
        raise BadRequest(f"{what}: begin_s: use a multiple of {CHUNK_S} that is not in the future.")
    return topic, begin_s, {name: _values(what, name, given) for name in REPORTED}


def _values(what: str, name: str, given: Mapping[str, Any]) -> list[float]:
    values = given[name]
    if not isinstance(values, list) or len(values) != MINUTES or not all(map(_is_value, values)):
        raise BadRequest(f"{what}: {name}: use {MINUTES} numbers from 0 to {VALUE_MAX:g}, or null.")
    if name == MESSAGES and all(value is None for value in values):
        raise BadRequest(f"{what}: {name}: has no minute.")
    return [math.nan if value is None else float(value) for value in values]


def _is_value(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= VALUE_MAX)
