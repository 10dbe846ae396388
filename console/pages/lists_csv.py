"""The lists of topics and groups as CSV, in which no cell is a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from flask import Response, request
from flask.typing import ResponseReturnValue

from common.config.definitions import GroupDefinition, TopicDefinition
from common.config.setting import table_of
from console.installation.queue_states import total_lag
from console.pages.actions import cell
from console.parts import parts
from console.roles import Role
from console.routes import resource

ROWS_MAX = 10_000
LAGS_MAX = 500
"""Groups whose lag is asked for: each costs an engine 0.3 ms."""


@resource("/topics.csv", role=Role.VIEWER)
def topics() -> ResponseReturnValue:
    """Topics whose names contain a text, with owner and settings; the first ROWS_MAX by name."""
    names = parts().configuration.names.page("topic", _text(), limit=ROWS_MAX).names
    owners = parts().requests.owning_teams(names)
    settings = list(table_of(TopicDefinition))
    found = ((name, parts().configuration.view.topic(name)) for name in names)
    return _csv(
        "topics",
        ["name", "team", *settings],
        ([name, owners.get(name), *_values(topic, settings)] for name, topic in found),
    )


@resource("/groups.csv", role=Role.VIEWER)
def groups() -> ResponseReturnValue:
    """Groups that are defined or have pulled, as topics; with the lag of the first LAGS_MAX, empty where it is not known."""
    text, settings = _text(), list(table_of(GroupDefinition))
    defined = parts().configuration.names.page("group", text, limit=ROWS_MAX).names
    with parts().brokers.open() as opened:
        pulled = {name for name in parts().brokers.groups(opened, limit=ROWS_MAX) if text.casefold() in name.casefold()}
        names = sorted({*defined, *pulled})[:ROWS_MAX]
        lags = {}
        for name in [each for each in names if each in pulled][:LAGS_MAX]:
            answer = parts().brokers.ask(opened, "lag", "queues", group=name)
            if answer.rows and not answer.faults:
                lags[name] = total_lag(name, answer.rows)
    rows = (
        [name, each.lag if (each := lags.get(name)) else None, each.in_flight if each else None,
         *_values(parts().configuration.view.group(name), settings)]
        for name in names
    )  # fmt: skip
    return _csv("groups", ["name", "lag", "in_flight", *settings], rows)


def _text() -> str:
    return request.args.get("q", "").strip()[:249]


def _values(definition: Any, settings: Sequence[str]) -> list[Any]:
    """The settings as the configuration stores them; empty cells where there is no definition."""
    if definition is None:
        return [None] * len(settings)
    table = table_of(type(definition))
    return [table[name].type.stored(getattr(definition, name)) for name in settings]


def _csv(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Response:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(value) for value in row])
    disposition = f'attachment; filename="{name}.csv"'
    return Response(out.getvalue(), mimetype="text/csv", headers={"Content-Disposition": disposition})
