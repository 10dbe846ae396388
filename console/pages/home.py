"""The first page: what waits for the account, its topics and requests, and the state of the installation."""

from typing import Any

from flask import render_template
from flask.typing import ResponseReturnValue

from common.config.errors import ConfigError
from console.database.alert_states import FIRING
from console.database.user_requests import APPROVED, REQUESTED
from console.installation.processes import process_states
from console.parts import account, parts
from console.roles import Role
from console.routes import page

SHOWN_MAX = 8


@page("/", role=Role.VIEWER, title="Overview", menu=1)
def show() -> ResponseReturnValue:
    """The overview."""
    own, names = account(), parts().configuration.names
    waiting = parts().requests.list((REQUESTED, APPROVED), limit=SHOWN_MAX) if own.role >= Role.OPERATOR else []
    mine = parts().requests.list(asker=own.name, limit=SHOWN_MAX)
    team_topics = parts().requests.topics_of([team.id for team in own.teams]) if own.teams else []
    counts = {kind: names.count(kind) for kind in ("topic", "group", "application")}
    return render_template(
        "home/home.html", waiting=waiting, mine=mine, team_topics=team_topics[: 3 * SHOWN_MAX],
        more_topics=max(0, len(team_topics) - 3 * SHOWN_MAX), counts=counts, processes=_processes(),
        firing=[alert for alert in parts().alerts.open() if alert.state == FIRING],
    )  # fmt: skip


def _processes() -> dict[str, Any]:
    """How many processes are in which state; {} while the store is away."""
    try:
        states = [each.state for each in process_states(parts().configuration.admin("console"))]
    except ConfigError:
        return {}
    return {state: states.count(state) for state in ("current", "behind", "no contact")}
