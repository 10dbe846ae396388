"""The policy for approval without a person, one row per version."""

from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import policy
from console.errors import RequestConflict


class ApprovalPolicies:
    def __init__(self, database: ConsoleDatabase, log: ActionLog, clock: Clock) -> None:
        self._database, self._log, self._clock = database, log, clock

    def current(self) -> tuple[dict[str, Any], int]:
        """The newest value and its version; {} and 0 where none was set."""
        with self._database.read() as connection:
            return _newest(connection)

    def replace(self, actor: Actor, value: dict[str, Any], seen: int) -> None:
        """Set the policy. Raises RequestConflict when it was changed since version `seen`."""
        try:
            with self._database.write() as connection:
                old, version = _newest(connection)
                if version != seen:
                    raise RequestConflict("The policy was changed meanwhile: look at it again, then change it.")
                row = {"version": seen + 1, "value": value, "at_ms": self._clock.now_ms(), "who": actor.name}
                connection.execute(insert(policy).values(**row))
                self._log.record(connection, actor, "change policy", "policy", old, value)
        except IntegrityError as error:
            raise RequestConflict("The policy was changed meanwhile: look at it again, then change it.") from error


def _newest(connection: Connection) -> tuple[dict[str, Any], int]:
    row = connection.execute(select(policy).order_by(policy.c.version.desc()).limit(1)).one_or_none()
    return ({}, 0) if row is None else (row.value, row.version)
