"""Identities of a provider of OpenID Connect: issuer and subject name an account. Names and addresses never do, because
providers let people choose them.
"""

import re
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.accounts import Account, Accounts
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import identities, users
from console.errors import InvalidForm, SignInRefused
from console.roles import Role

NAME_CHARS_MAX = 60  # leaves room for a number
TRIES = 50
UNFIT = re.compile(r"[^A-Za-z0-9._@-]+")


class Identities:
    def __init__(self, database: ConsoleDatabase, accounts: Accounts, log: ActionLog, clock: Clock) -> None:
        self._database, self._accounts, self._log, self._clock = database, accounts, log, clock

    def find(self, issuer: str, subject: str) -> Account | None:
        wanted = select(identities.c.user_id).where(identities.c.issuer == issuer, identities.c.subject == subject)
        with self._database.read() as connection:
            user_id = connection.execute(wanted).scalar_one_or_none()
        return None if user_id is None else self._accounts.get(user_id)

    def sign_in(self, address: str, issuer: str, claims: dict[str, Any], role: Role | None) -> Account:
        """The account of checked claims; at the first sign-in it is made, as a viewer unless a role is given.

        Args:
            role: what the claims say; None: the role is set in the console.
        Raises:
            SignInRefused: the account is switched off.
        """
        subject = claims["sub"]
        found = self.find(issuer, subject)
        if found is None:
            try:
                found = self._make(address, issuer, subject, wished_name(claims), role or Role.VIEWER)
            except IntegrityError:  # another tab or console was faster
                found = self.find(issuer, subject)
        if found is None:
            raise SignInRefused("another sign-in took the same name at this moment: begin again")
        if not found.is_active:
            raise SignInRefused(f"account {found.name} is switched off: ask an administrator")
        if role is not None and role != found.role:
            found = self._change_role(address, found, role)
        return found

    def _make(self, address: str, issuer: str, subject: str, wished: str, role: Role) -> Account:
        with self._database.write() as connection:
            name = _free_name(connection, wished)
            row = {"name": name, "role": role.label, "is_active": True, "created_ms": self._clock.now_ms()}
            user_id = connection.execute(insert(users).values(**row).returning(users.c.id)).scalar_one()
            own = {"issuer": issuer, "subject": subject, "user_id": user_id, "created_ms": self._clock.now_ms()}
            connection.execute(insert(identities).values(**own))
            new = {"role": role.label, "issuer": issuer, "subject": subject}
            self._log.record(connection, Actor(name, address), "create account", f"account {name}", None, new)
        made = self._accounts.get(user_id)
        assert made is not None
        return made

    def _change_role(self, address: str, found: Account, role: Role) -> Account:
        actor = Actor("(openid)", address)
        try:
            self._accounts.change(actor, found.id, role.label, True, [team.id for team in found.teams])
        except InvalidForm:  # the last administrator keeps the role: somebody has to be able to give it
            return found
        changed = self._accounts.get(found.id)
        assert changed is not None
        return changed


def wished_name(claims: dict[str, Any]) -> str:
    """A name for the account, by what the claims call the person."""
    for claim in ("preferred_username", "email", "sub"):
        text = claims.get(claim)
        made = UNFIT.sub("-", text).strip("-._@")[:NAME_CHARS_MAX] if isinstance(text, str) else ""
        if made:
            return made
    return "person"


def _free_name(connection: Connection, wished: str) -> str:
    for number in range(1, TRIES):
        name = wished if number == 1 else f"{wished}-{number}"
        if connection.execute(select(users.c.id).where(users.c.name == name)).one_or_none() is None:
            return name
    raise SignInRefused(f"there are too many accounts of the name {wished}: ask an administrator")
