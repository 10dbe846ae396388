"""Bearer tokens of the API: hashed at rest, shown once, bound to an account and at most its role, with an end."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from common.clock import Clock
from console.database.accounts import Account, Accounts
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import api_tokens
from console.database.sessions import NOTE_MS, TOKEN_CHARS_MAX, digest
from console.errors import InvalidForm
from console.roles import ROLE_NAMES, Role

PREFIX = "penstock_"
"""By which scanners of repositories find a token that was committed."""
DAYS_MAX, TOKENS_MAX, NAME_CHARS_MAX = 366, 20, 64
DAY_MS = 86_400_000


class ApiTokens:
    def __init__(self, database: ConsoleDatabase, accounts: Accounts, log: ActionLog, clock: Clock) -> None:
        self._database, self._accounts, self._log, self._clock = database, accounts, log, clock

    def make(self, actor: Actor, account: Account, name: str, role: str, days: int) -> str:
        """A new token of the account. Raises InvalidForm."""
        faults = {}
        if not 1 <= len(name) <= NAME_CHARS_MAX:
            faults["name"] = f"Use 1 to {NAME_CHARS_MAX} characters."
        if role not in ROLE_NAMES or Role.named(role) > account.role:
            faults["role"] = "Choose your role, or one with fewer rights."
        if not 1 <= days <= DAYS_MAX:
            faults["days"] = f"A token ends after 1 to {DAYS_MAX} days."
        if faults:
            raise InvalidForm(faults)
        token, now_ms = PREFIX + secrets.token_urlsafe(32), self._clock.now_ms()
        row = {"user_id": account.id, "name": name, "role": role, "created_ms": now_ms}
        with self._database.write() as connection:
            own = select(func.count()).select_from(api_tokens).where(api_tokens.c.user_id == account.id)
            if connection.execute(own).scalar_one() >= TOKENS_MAX:
                raise InvalidForm({"": f"You have {TOKENS_MAX} tokens, which is the most: revoke one."})
            row["expires_ms"] = now_ms + days * DAY_MS
            connection.execute(insert(api_tokens).values(token_sha256=digest(token), **row))
            self._log.record(connection, actor, "make API token", f"token {name}", None, {"role": role, "days": days})
        return token

    def find(self, token: str) -> Account | None:
        """The account of a valid token, with at most the token's role; None: it is none."""
        if not token.startswith(PREFIX) or len(token) > TOKEN_CHARS_MAX:
            return None
        now_ms, own = self._clock.now_ms(), api_tokens.c.token_sha256 == digest(token)
        with self._database.read() as connection:
            row = connection.execute(select(api_tokens).where(own, api_tokens.c.expires_ms > now_ms)).one_or_none()
        account = self._accounts.get(row.user_id) if row is not None else None
        if row is None or account is None or not account.is_active:
            return None
        if now_ms - (row.used_ms or 0) > NOTE_MS:
            with self._database.write() as connection:
                connection.execute(update(api_tokens).where(own).values(used_ms=now_ms))
        return replace(account, role=min(account.role, Role.named(row.role)))

    def of(self, user_id: int) -> Sequence[Any]:
        """The account's tokens: id, name, role, created_ms, expires_ms, used_ms."""
        wanted = select(api_tokens).where(api_tokens.c.user_id == user_id).order_by(api_tokens.c.id)
        with self._database.read() as connection:
            return connection.execute(wanted).all()

    def revoke(self, actor: Actor, user_id: int, token_id: int) -> None:
        """End a token of the account."""
        own = (api_tokens.c.id == token_id, api_tokens.c.user_id == user_id)
        with self._database.write() as connection:
            name = connection.execute(select(api_tokens.c.name).where(*own)).scalar_one_or_none()
            if name is not None:
                connection.execute(delete(api_tokens).where(*own))
                self._log.record(connection, actor, "revoke API token", f"token {name}")
