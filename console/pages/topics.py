"""Topics: the list with search and pages, and one topic with its queues and groups."""

from typing import Any

from flask import render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.config.definitions import TopicDefinition
from common.config.setting import table_of
from console.database.series_history import SeriesKey
from console.database.topic_notes import notes_of
from console.installation.queue_states import lags_of_topic, queue_states
from console.pages.charts import lately_refused, topic_charts
from console.pages.connections import clients_of
from console.parts import may_use_topic, parts
from console.roles import Role
from console.routes import page
from console.shown import label, setting

PAGE = 50
TEXT_CHARS_MAX = 249
QUEUES_SHOWN = 256


@page("/topics", role=Role.VIEWER, title="Topics", menu=2)
def index() -> ResponseReturnValue:
    """Topics whose names contain a text, a page at a time; families above them."""
    text, after = request.args.get("q", "").strip()[:TEXT_CHARS_MAX], request.args.get("after", "")
    configuration = parts().configuration
    page = configuration.names.page("topic", text, after, PAGE)
    families = [] if after else configuration.names.page("family", text, limit=PAGE).names
    rows = [(name, configuration.view.topic(name)) for name in page.names]
    shown = {"rows": rows, "page": page, "families": families, "text": text, "after": after}
    is_part = request.headers.get("HX-Request") == "true"
    return render_template("topics/topics_rows.html" if is_part else "topics/topics.html", **shown)


@page("/topics/<name>", role=Role.VIEWER, sample="/topics/orders.created?range=15m")
def show(name: str) -> ResponseReturnValue:
    """One topic."""
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition):
        raise NotFound(f"There is no topic {name[:TEXT_CHARS_MAX]} and no family for it.")
    topic = found.definition
    with parts().brokers.open() as opened:
        queues, faults = queue_states(parts().brokers, opened, name, min(topic.queues, QUEUES_SHOWN))
        lags, has_more = lags_of_topic(parts().brokers, opened, name)
    return render_template(
        "topics/topic.html", topic=topic, lag_s=_sampled_lag_s([each.group for each in lags]),
        version=found.version, settings=settings_of(topic), queues=queues, faults=faults,
        lags=lags, has_more=has_more, owner=parts().requests.owner_of(name),
        notes=notes_of(parts().database, name), may_use=may_use_topic(name),
        queues_shown=QUEUES_SHOWN, charts=topic_charts(name), clients=clients_of({"topic": name}),
        refused=lately_refused(f"topic:{name}"), is_fed=parts().sampler.is_fed(),
        figures_left_out=parts().sampler.pages.topics.left_out,
    )  # fmt: skip


def _sampled_lag_s(groups: list[str]) -> dict[str, float]:
    """The lag in time of those groups that the last sample has: asking an engine for it costs 2 ms per group."""
    latest = parts().sampler.latest
    found = {name: latest.get(SeriesKey(f"group:{name}", "lag_s")) for name in groups}
    return {name: value for name, value in found.items() if value is not None}


def settings_of(definition: Any) -> list[dict[str, Any]]:
    """Rows of a definition's settings: name, value, help, whether the value is the default."""
    rows = []
    for name, each in table_of(type(definition)).items():
        value = getattr(definition, name)
        shown = setting(name, each.type.stored(value))
        rows.append({"name": label(name), "value": shown, "help": each.help, "is_default": value == each.default})
    return rows
