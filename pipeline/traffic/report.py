"""Writes a report on traffic: `traffic.html` for people, `traffic.json` for programs, and the table `minutes`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipeline.archive.place import ArchivePlace
from pipeline.traffic.figures import TrafficFigures
from pipeline.traffic.forecast import TopicLimits, as_json, disk_forecast, forecast_of, limits_of
from pipeline.traffic.page import traffic_page
from pipeline.traffic.refusals import RefusedMessages

PAGE, DATA = "traffic.html", "traffic.json"


class ForecastBasis(NamedTuple):
    """
    Attributes:
        limits: per topic and family.
        retention_ms: the engine's, for topics without one.
        free_bytes: of the disk; None: not known.
    """

    limits: Mapping[str, TopicLimits]
    retention_ms: int
    free_bytes: int | None


def write_traffic_report(
    figures: TrafficFigures, basis: ForecastBasis, folder: str, source: str, made_s: float, sent_property: str = "",
    application_property: str = "", refusals: Mapping[str, list[RefusedMessages]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write both files into a directory or URL, each as a whole, in place of earlier ones; returns the data.

    Args:
        refusals: by topic; None: nobody was asked.
    """
    forecasts = [
        forecast_of(each, figures.step_s, limits_of(each.topic, basis.limits), basis.retention_ms)
        for each in figures.topics
    ]
    stored = {each.topic: each.size_bytes for each in figures.topics}
    disk = None
    if basis.free_bytes is not None:
        disk = disk_forecast(forecasts, stored, basis.limits, basis.retention_ms, basis.free_bytes)
    data = {
        "source": source, "made_s": int(made_s), "step_s": figures.step_s, "empty": figures.empty,
        "topics": [
            {
                **each._asdict(), "queue_skew": round(each.queue_skew, 3),
                **{name: [one._asdict() for one in getattr(each, name)] for name in ("queues", "top_keys", "applications", "steps")},
            }
            for each in figures.topics
        ],
        "forecast": [as_json(each) for each in forecasts],
        "refused": None if refusals is None else {
            topic: [row._asdict() for row in rows] for topic, rows in refusals.items() if rows
        },
        "disk": disk._asdict() if disk else None,
    }  # fmt: skip
    place = ArchivePlace(folder)
    place.write_json(DATA, data)
    notes = _notes(basis, sent_property, application_property, refusals is not None)
    ahead = {each.topic: each for each in forecasts}
    place.write_text(PAGE, traffic_page(figures, ahead, disk, source, made_s, notes, refusals or {}))
    return data


def _notes(basis: ForecastBasis, sent_property: str, application_property: str, has_refusals: bool) -> list[str]:
    sent = f"property {sent_property}" if sent_property else "the id, where a producer proxy has assigned it"
    notes = [
        "Bytes are those of bodies. The engine's log needs more: keys, properties, ids, and copies on slaves.",
        f"The time of sending is from {sent}; the time of storing is the engine's. Between machines, the difference of "
        "their clocks is part of it.",
        "Percentiles are from KLL sketches per minute, whose ranks are wrong by 0.2 % at most in practice.",
        "Queue skew is the fullest queue over the mean of all with messages: 1 is even.",
        "Per day and growth are a straight line through the range, of which growth needs two days. Kept is what retention "
        f"keeps at that rate, with {basis.retention_ms / 3_600_000:,.0f} hours for topics without a retention of their own.",
    ]  # fmt: skip
    if not basis.limits:
        notes.append("Limits of topics were not given (--topics-file), so they are not judged.")
    if not application_property:
        notes.append("A stored message does not name its application; a property that does can be given.")
    notes.append(
        "Refused messages are from the console's history, which looks at each proxy every 10 s: calls over several "
        "topics and requests with a reply are not counted by topic there. The same message may be refused several times."
        if has_refusals
        else "Result codes of sends are in no message: refused ones are not stored. The console's history has them (--console)."
    )
    return notes
