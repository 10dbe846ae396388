"""Consumer groups: the list with lag, and one group with its queues."""

from typing import Any

from flask import render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.config.definitions import GroupDefinition
from common.dead_letters import is_dead_letter_topic
from common.names import is_name
from console.installation.broker_queries import BrokerLinks
from console.installation.queue_states import total_lag
from console.pages.charts import group_charts
from console.pages.connections import clients_of
from console.pages.rates import rate_fields
from console.pages.topics import settings_of
from console.parts import may_act_on_group, parts
from console.roles import Role
from console.routes import page

PAGE = 50


@page("/groups", role=Role.VIEWER, title="Groups", menu=3)
def index() -> ResponseReturnValue:
    """Groups that are defined or have pulled, by name, with their lag."""
    text, after = request.args.get("q", "").strip()[:249], request.args.get("after", "")
    defined = parts().configuration.names.page("group", text, after, PAGE + 1).names
    with parts().brokers.open() as opened:
        pulled = parts().brokers.groups(opened, after=after, limit=1_000)
        found = sorted({*defined, *(name for name in pulled if text.casefold() in name.casefold())})
        names = found[:PAGE]
        lags = {name: _lag(opened, name) for name in names if name in pulled}
        faults = opened.faults
    following = names[-1] if len(found) > PAGE else ""
    rows = [(name, name in defined, lags.get(name)) for name in names]
    shown = {"rows": rows, "text": text, "after": after, "following": following, "faults": faults}
    return render_template("groups/groups.html", **shown)


def _lag(opened: BrokerLinks, name: str) -> Any:
    answer = parts().brokers.ask(opened, "lag", "queues", group=name)
    return total_lag(name, answer.rows) if answer.rows or not answer.faults else None


@page("/groups/<name>", role=Role.VIEWER, sample="/groups/billing?range=15m")
def show(name: str) -> ResponseReturnValue:
    """One group."""
    found = parts().configuration.group(name) if is_name(name) else None
    with parts().brokers.open() as opened:
        answer = parts().brokers.ask(opened, "lag", "queues", group=name, detail=True) if is_name(name) else None
    if answer is None or (found is None and not answer.rows and not answer.faults):
        raise NotFound(f"Group {name[:249]} is not defined and has never pulled.")
    settings = settings_of(found.definition) if found is not None else []
    rows = sorted(answer.rows, key=lambda row: (row["topic"], row["queue"]))
    return render_template(
        "groups/group.html", name=name, found=found, settings=settings, rows=rows, faults=answer.faults,
        total=total_lag(name, rows) if rows else None, charts=group_charts(name), clients=clients_of({"group": name}),
        oldest_s=max((row["lag_s"] for row in rows if row["lag"]), default=0.0),
        owner=parts().requests.owner_of_group(name), rate_fields=rate_fields(GroupDefinition),
        may_act=may_act_on_group(name, sorted({row["topic"] for row in rows if not is_dead_letter_topic(row["topic"])})),
    )  # fmt: skip
