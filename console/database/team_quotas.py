"""Quotas of teams, as operators have set them, and what the teams' requests have asked for."""

from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import owners, quotas, requests, teams
from console.database.user_requests import APPLIED, APPROVED, TOPIC
from console.errors import RequestConflict

RACE = "The quota was changed meanwhile: look at it again, then change it."


class Holding(NamedTuple):
    """One topic of a team: as it was asked for, and whether it is in the configuration, which knows its settings now."""

    name: str
    asked: dict[str, Any]
    settings: dict[str, Any]
    is_applied: bool


class SetQuota(NamedTuple):
    """A quota as stored, with its version; 0: none was set, and nothing is bounded."""

    value: dict[str, int]
    version: int


UNBOUNDED = SetQuota({}, 0)


class TeamQuotas:
    def __init__(self, database: ConsoleDatabase, log: ActionLog, clock: Clock) -> None:
        self._database, self._log, self._clock = database, log, clock

    def of(self, team_id: int, within: Connection | None = None) -> SetQuota:
        """The quota of a team.

        Args:
            within: the transaction of a decision: until its end no other decision reads this quota there.
        """
        wanted = select(quotas).where(quotas.c.team_id == team_id)
        if within is not None:
            return _set(within.execute(wanted.with_for_update()).one_or_none())
        with self._database.read() as connection:
            return _set(connection.execute(wanted).one_or_none())

    def all(self) -> dict[int, SetQuota]:
        """By team."""
        with self._database.read() as connection:
            return {row.team_id: _set(row) for row in connection.execute(select(quotas))}

    def replace(self, actor: Actor, team_id: int, value: dict[str, int], seen: int) -> None:
        """Set the quota of a team. Raises RequestConflict when it was changed since version `seen`, or the team is gone."""
        now = {"version": seen + 1, "value": value, "at_ms": self._clock.now_ms(), "who": actor.name}
        try:
            with self._database.write() as connection:
                team = connection.execute(select(teams.c.name).where(teams.c.id == team_id)).scalar_one_or_none()
                old = _set(connection.execute(select(quotas).where(quotas.c.team_id == team_id)).one_or_none())
                if team is None or old.version != seen:
                    raise RequestConflict(RACE if team is not None else "There is no such team.")
                if seen:
                    same = (quotas.c.team_id == team_id, quotas.c.version == seen)
                    if connection.execute(update(quotas).where(*same).values(**now)).rowcount != 1:
                        raise RequestConflict(RACE)
                else:
                    connection.execute(insert(quotas).values(team_id=team_id, **now))
                self._log.record(connection, actor, "change quota", f"team {team}", old.value if seen else None, value)
        except IntegrityError as error:
            raise RequestConflict(RACE) from error

    def holdings(self, team_id: int, within: Connection | None = None) -> list[Holding]:
        """Topics that the team has, and those that are approved for it. A name that was asked for twice counts by its last."""
        if within is None:
            with self._database.read() as connection:
                return self.holdings(team_id, connection)
        new = (requests.c.kind == TOPIC, requests.c.base_version.is_(None))
        columns = select(requests.c.name, requests.c.asked, requests.c.settings)
        own = columns.join(owners, owners.c.topic == requests.c.name).where(
            *new, requests.c.state == APPLIED, owners.c.team_id == team_id
        )
        coming = columns.where(*new, requests.c.state == APPROVED, requests.c.team_id == team_id)
        # In this order: each read sees the state of its moment, and one that is applied between the two must be in one.
        waiting = {row.name: _holding(row, False) for row in within.execute(coming)}
        applied = {row.name: _holding(row, True) for row in within.execute(own.order_by(requests.c.id))}
        return list((applied | waiting).values())


def _holding(row: Row[Any], is_applied: bool) -> Holding:
    return Holding(row.name, row.asked, row.settings, is_applied)


def _set(row: Row[Any] | None) -> SetQuota:
    return UNBOUNDED if row is None else SetQuota(row.value, row.version)
