"""Sessions of signed-in accounts. The database has only the hash of a token, so a copy of the database cannot be used to sign in."""

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from common.clock import Clock
from console.database.accounts import Account, Accounts
from console.database.console_database import ConsoleDatabase
from console.database.schema import sessions

IDLE_MS, WHOLE_MS = 30 * 60_000, 12 * 3_600_000
NOTE_MS = 60_000  # the last use is written at most this often
TOKEN_CHARS_MAX = 100


@dataclass(frozen=True)
class SignedIn:
    """A session. `csrf` has to come with each change."""

    account: Account
    csrf: str
    token: str


class Sessions:
    def __init__(self, database: ConsoleDatabase, accounts: Accounts, clock: Clock) -> None:
        self._database, self._accounts, self._clock = database, accounts, clock

    def open(self, account: Account) -> SignedIn:
        """Begin a session with a new token, and remove those that have ended."""
        token, csrf, now_ms = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._clock.now_ms()
        row = {"user_id": account.id, "csrf": csrf, "created_ms": now_ms, "used_ms": now_ms}
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.created_ms < now_ms - WHOLE_MS))
            connection.execute(insert(sessions).values(token_sha256=digest(token), **row))
        return SignedIn(account, csrf, token)

    def find(self, token: str) -> SignedIn | None:
        """The session of a token; None: it has ended, or the account is not active."""
        if not 0 < len(token) <= TOKEN_CHARS_MAX:
            return None
        now_ms, own = self._clock.now_ms(), sessions.c.token_sha256 == digest(token)
        with self._database.read() as connection:
            row = connection.execute(select(sessions).where(own)).one_or_none()
        if row is None or now_ms - row.used_ms > IDLE_MS or now_ms - row.created_ms > WHOLE_MS:
            return None
        account = self._accounts.get(row.user_id)
        if account is None or not account.is_active:
            return None
        if now_ms - row.used_ms > NOTE_MS:
            with self._database.write() as connection:
                connection.execute(update(sessions).where(own).values(used_ms=now_ms))
        return SignedIn(account, row.csrf, token)

    def close(self, token: str) -> None:
        """End a session."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.token_sha256 == digest(token)))


def digest(token: str) -> str:
    """A token as the database keeps it. Tokens have 256 bits, so no salt and no slow hash are needed."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
