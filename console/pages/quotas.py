"""Quotas of teams: what each holds and may hold, for operators."""

from collections.abc import Mapping

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from console.asking.team_quota import BOUNDS, TeamQuota
from console.database.accounts import Team
from console.database.team_quotas import UNBOUNDED, SetQuota
from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said


@page("/quotas", role=Role.OPERATOR, title="Quotas", menu=4)
def form_page() -> ResponseReturnValue:
    """All teams."""
    return _page(0, {}, {})


def _page(team_id: int, values: Mapping[str, str], faults: Mapping[str, str], status: int = 200) -> ResponseReturnValue:
    """
    Args:
        team_id: whose form has faults; 0: none has.
    """
    rows = [
        (team, TeamQuota(**own.value), own.version, parts().quota_check.held(team.id))
        for team, own in quotas_of_teams()
    ]
    return render_template(
        "rules/quotas.html", rows=rows, bounds=BOUNDS, at=team_id, values=values, faults=faults
    ), status


def quotas_of_teams() -> list[tuple[Team, SetQuota]]:
    """All teams, each with its quota."""
    found = parts().quotas.all()
    return [(team, found.get(team.id, UNBOUNDED)) for team in parts().accounts.teams()]


@action("/quotas/<int:team_id>", role=Role.OPERATOR, said="The quota counts from the next decision on.")
def change(team_id: int) -> ResponseReturnValue:
    """Replace the quota of a team, unless another person was faster."""
    seen = form().get("version", "")
    try:
        quota = TeamQuota.from_form(form())
    except InvalidForm as error:
        return _page(team_id, form(), error.faults, 422)
    parts().quotas.replace(actor(), team_id, quota.to_value(), int(seen) if seen.isascii() and seen.isdigit() else -1)
    return redirect(with_said("/quotas"), 303)
