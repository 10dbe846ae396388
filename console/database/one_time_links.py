"""One-time links: for the first account, a new account, a forgotten password."""

import secrets
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from common.clock import Clock
from console.database.console_database import ConsoleDatabase
from console.database.schema import links
from console.database.sessions import TOKEN_CHARS_MAX, digest

DAY_MS = 86_400_000


class LinkUse(NamedTuple):
    """A link that is valid now. `user_id` None: it makes the first account."""

    user_id: int | None


class OneTimeLinks:
    def __init__(self, database: ConsoleDatabase, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def make(self, user_id: int | None, days: int = 1) -> str:
        """A new token; earlier links for the same account are void."""
        token = secrets.token_urlsafe(32)
        with self._database.write() as connection:
            _void(connection, user_id)
            row = {"user_id": user_id, "expires_ms": self._clock.now_ms() + days * DAY_MS}
            connection.execute(insert(links).values(token_sha256=digest(token), **row))
        return token

    def look(self, token: str) -> LinkUse | None:
        """The link's use, without using it: a preview by a chat program must not consume it."""
        if not 0 < len(token) <= TOKEN_CHARS_MAX:
            return None
        wanted = select(links.c.user_id).where(
            links.c.token_sha256 == digest(token), links.c.expires_ms > self._clock.now_ms()
        )
        with self._database.read() as connection:
            row = connection.execute(wanted).one_or_none()
        return None if row is None else LinkUse(row.user_id)

    def use(self, token: str) -> LinkUse | None:
        """Consume the link; None: it is void, or another use was faster."""
        found = self.look(token)
        if found is None:
            return None
        with self._database.write() as connection:
            gone = connection.execute(delete(links).where(links.c.token_sha256 == digest(token))).rowcount
        return found if gone == 1 else None


def _void(connection: Connection, user_id: int | None) -> None:
    own = links.c.user_id.is_(None) if user_id is None else links.c.user_id == user_id
    connection.execute(delete(links).where(own))
