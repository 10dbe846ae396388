"""The console's audit log: every action of a person, in the transaction of its change where that is in the database."""

from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, or_, select

from common.clock import Clock
from console.database.console_database import ConsoleDatabase
from console.database.schema import audit

SHOWN_MAX = 10_000
FAILED_SIGN_IN, FAILED_KEPT_MS = "failed sign-in", 90 * 86_400_000


class Actor(NamedTuple):
    """Who acts, and from which network address."""

    name: str
    address: str


class ActionLog:
    def __init__(self, database: ConsoleDatabase, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def note(self, actor: Actor, action: str, subject: str, old: Any = None, new: Any = None) -> None:
        """Record an action that changed nothing in the database. Raises DatabaseUnavailable."""
        with self._database.write() as connection:
            self.record(connection, actor, action, subject, old, new)

    def note_failed_sign_in(self, actor: Actor, subject: str, new: Any = None) -> None:
        """Record a visitor's failure, and forget those of more than 90 days ago: only people's actions are kept for good.

        Raises DatabaseUnavailable.
        """
        with self._database.write() as connection:
            is_old = audit.c.at_ms < self._clock.now_ms() - FAILED_KEPT_MS
            connection.execute(delete(audit).where(is_old, audit.c.action == FAILED_SIGN_IN))
            self.record(connection, actor, FAILED_SIGN_IN, subject, None, new)

    def record(
        self, connection: Connection, actor: Actor, action: str, subject: str, old: Any = None, new: Any = None
    ) -> None:
        """Record an action within the transaction of its change."""
        connection.execute(
            insert(audit).values(
                at_ms=self._clock.now_ms(), who=actor.name[:64], address=actor.address[:64], action=action[:32],
                subject=subject[:300], old=old, new=new,
            )
        )  # fmt: skip

    def latest(self, text: str = "", before_id: int = 0, limit: int = 50) -> list[dict[str, Any]]:
        """The newest records, newest first.

        Args:
            text: part of the author, action or subject.
            before_id: the last record of the page before; 0: begin with the newest.
        """
        wanted = select(audit).order_by(audit.c.id.desc()).limit(min(limit, SHOWN_MAX))
        if before_id:
            wanted = wanted.where(audit.c.id < before_id)
        if text:
            columns = (audit.c.who, audit.c.action, audit.c.subject)
            wanted = wanted.where(or_(*(column.icontains(text, autoescape=True) for column in columns)))
        with self._database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]
