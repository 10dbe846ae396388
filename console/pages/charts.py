"""Charts on the pages of topics, groups and the map: their parts of a page, and their points as JSON."""

import re
from collections.abc import Iterable
from typing import Any

from flask import jsonify, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from console.database.reported_minutes import MESSAGES
from console.database.series_history import ALL
from console.parts import parts
from console.roles import Role
from console.routes import resource
from console.watching.charts import (
    GROUP_CHARTS,
    INSTALLATION_CHARTS,
    RANGE,
    RANGES,
    REPORTED_CHARTS,
    TOPIC_CHARTS,
    Chart,
    chart_data,
    chart_table,
)
from console.watching.figures import FIGURES, REFUSED, figure
from console.watching.refusals import RefusedCode, refusals

NAMES_MAX, SUBJECT_CHARS_MAX = 12, 300
REFUSED_CODE = re.compile(rf"{re.escape(REFUSED)}[0-9]{{1,9}}")


@resource("/charts", role=Role.VIEWER)
def points() -> ResponseReturnValue:
    """The points of one chart: `subject`, `names` separated by commas, `range`."""
    return jsonify(chart_points())


def chart_points() -> dict[str, Any]:
    """The points that the request's query names, as JSON values."""
    names = tuple(name for name in request.args.get("names", "").split(",") if name)
    subject = request.args.get("subject", "")
    is_known = all(name in FIGURES or REFUSED_CODE.fullmatch(name) for name in names)
    if not 1 <= len(names) <= NAMES_MAX or not is_known or len(subject) > SUBJECT_CHARS_MAX:
        raise NotFound("There is no such chart.")
    chart = Chart("", subject, names)
    (data,) = chart_data(parts().sampler, [chart], _range(), _now_s())
    labels = [figure(name).words for name in names]
    shown = [[value if value is None else float(f"{value:.6g}") for value in data.values[name]] for name in names]
    return {"times": data.times, "values": shown, "labels": labels, "unit": chart.unit, "step_s": data.step_s}


def _range() -> str:
    found = request.args.get("range", RANGE)
    return found if found in RANGES else RANGE


def _now_s() -> int:
    return parts().clock.now_ms() // 1000


def _shown(charts: Iterable[Chart]) -> dict[str, Any]:
    """The values of the template `charts.html`."""
    wanted = list(charts)
    data = chart_data(parts().sampler, wanted, _range(), _now_s()) if wanted else []
    made = [{"chart": chart, **chart_table(chart, each)} for chart, each in zip(wanted, data, strict=True)]
    return {"charts": made, "range": _range(), "ranges": list(RANGES)}


def topic_charts(name: str) -> dict[str, Any]:
    """Those of every topic, and those of reports of the pipeline, if it has any."""
    subject = f"topic:{name}"
    more = REPORTED_CHARTS if MESSAGES in parts().history.names(subject) else ()
    return _shown(Chart(title, subject, names) for title, names in (*TOPIC_CHARTS, *more))


def group_charts(name: str) -> dict[str, Any]:
    return _shown(Chart(title, f"group:{name}", names) for title, names in GROUP_CHARTS)


def lately_refused(subject: str = ALL) -> list[RefusedCode]:
    """Refusals of the whole installation, or of `topic:NAME`."""
    sampler = parts().sampler
    names = {key.name for key in sampler.running() if key.subject == subject} | set(parts().history.names(subject))
    return refusals(sampler, sorted(name for name in names if name.startswith(REFUSED)), _now_s(), subject)


def installation_charts() -> dict[str, Any]:
    """Those of the whole installation, and of brokers that have them."""
    history = parts().history
    charts = [Chart(title, ALL, names) for title, names in INSTALLATION_CHARTS] if parts().sampler.is_fed() else []
    latest = {key.name for key in parts().sampler.latest if key.subject == ALL}
    refused = sorted({name for name in (*history.names(ALL), *latest) if name.startswith(REFUSED)})
    if refused:
        charts.append(Chart("Refused messages by code", ALL, tuple(refused[:NAMES_MAX])))
    for title, name in (("Free on the disk of", "disk_free"), ("Slave behind its master:", "replica_gap")):
        known = {key.subject for key in parts().sampler.latest if key.name == name} | set(history.subjects(name))
        charts += [Chart(f"{title} {subject.partition(':')[2]}", subject, (name,)) for subject in sorted(known)[:8]]
    return _shown(charts)
