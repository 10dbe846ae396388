"""The team that a request is made for, as the forms of all requests have it."""

from collections.abc import Mapping, Sequence

from console.database.accounts import Team
from console.errors import InvalidForm
from console.parts import account, parts
from console.roles import Role


def asking_teams() -> Sequence[Team]:
    """The teams that the account may ask for."""
    return parts().accounts.teams() if account().role >= Role.OPERATOR else account().teams


def team_choices(values: Mapping[str, str]) -> tuple[Mapping[str, str], list[tuple[str, str]]]:
    """The form's fields, with the only team chosen, and the teams to choose from."""
    teams = asking_teams()
    choices = [("", "Choose a team")] if len(teams) > 1 else []
    choices += [(str(team.id), team.name) for team in teams]
    return ({**values, "team": str(teams[0].id)} if len(teams) == 1 else values), choices


def chosen_team(values: Mapping[str, str]) -> Team | None:
    """The team that a form names; None: the account may not ask for it."""
    return next((team for team in asking_teams() if str(team.id) == values.get("team", "")), None)


def needed_team(values: Mapping[str, str]) -> Team:
    """As `chosen_team`. Raises InvalidForm."""
    found = chosen_team(values)
    if found is None:
        raise InvalidForm({"team": "Choose one of your teams."})
    return found


def prefix_fault(name: str, team: Team) -> str:
    """Why the team's rule for names is broken; empty: it is not."""
    return "" if name.startswith(team.prefix) else f"Names of team {team.name} begin with {team.prefix}."
