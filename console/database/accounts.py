"""Accounts and teams."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import api_tokens, identities, memberships, sessions, teams, users
from console.errors import InvalidForm
from console.roles import ROLE_NAMES, Role

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
NAME_FAULT = "Use 1 to 64 characters of A–Z a–z 0–9 . _ @ -, beginning with a letter or digit."
PREFIX = re.compile(r"[A-Za-z0-9._-]{0,64}")


@dataclass(frozen=True)
class Team:
    """A team. `prefix` begins the names of its topics; empty: any name."""

    id: int
    name: str
    prefix: str


@dataclass(frozen=True)
class Account:
    """An account. `password` is encoded; None: none was set. `is_linked`: it signs in by OpenID Connect."""

    id: int
    name: str
    role: Role
    is_active: bool
    password: str | None
    teams: tuple[Team, ...]
    is_linked: bool = False

    def is_in(self, team_id: int) -> bool:
        return any(each.id == team_id for each in self.teams)


class Accounts:
    def __init__(self, database: ConsoleDatabase, log: ActionLog, clock: Clock) -> None:
        self._database, self._log, self._clock = database, log, clock

    def count(self) -> int:
        """The number of accounts."""
        with self._database.read() as connection:
            return connection.execute(select(func.count()).select_from(users)).scalar_one()

    def find(self, name: str) -> Account | None:
        """The account of that name, in any state."""
        with self._database.read() as connection:
            return _account(connection, users.c.name == name)

    def get(self, user_id: int) -> Account | None:
        with self._database.read() as connection:
            return _account(connection, users.c.id == user_id)

    def all(self) -> list[Account]:
        """Every account, by name."""
        with self._database.read() as connection:
            names = connection.execute(select(users.c.id).order_by(users.c.name)).scalars().all()
            found = [_account(connection, users.c.id == user_id) for user_id in names]
            return [each for each in found if each is not None]

    def teams(self) -> list[Team]:
        """Every team, by name."""
        with self._database.read() as connection:
            return [Team(*row) for row in connection.execute(select(teams).order_by(teams.c.name))]

    def add_team(self, actor: Actor, name: str, prefix: str = "") -> int:
        """Raises InvalidForm."""
        _check("team", name, NAME, NAME_FAULT)
        _check("prefix", prefix, PREFIX, "Use at most 64 characters of A–Z a–z 0–9 . _ -.")
        with self._unique("team", name), self._database.write() as connection:
            made = connection.execute(insert(teams).values(name=name, prefix=prefix).returning(teams.c.id)).scalar_one()
            self._log.record(connection, actor, "create team", f"team {name}", None, {"prefix": prefix})
            return made

    def add(self, actor: Actor, name: str, role: str, team_ids: Sequence[int], password: str | None = None) -> int:
        """Create an account and return its id. Raises InvalidForm."""
        _check("name", name, NAME, NAME_FAULT)
        if role not in ROLE_NAMES:
            raise InvalidForm({"role": f"Choose one of {', '.join(ROLE_NAMES)}."})
        with self._unique("name", name), self._database.write() as connection:
            user_id = self._insert(connection, name, role, password)
            _set_teams(connection, user_id, team_ids)
            new = {"role": role, "teams": list(team_ids)}
            self._log.record(connection, actor, "create account", f"account {name}", None, new)
            return user_id

    def _insert(self, connection: Connection, name: str, role: str, password: str | None) -> int:
        row = {"name": name, "role": role, "password": password, "is_active": True}
        made = insert(users).values(**row, created_ms=self._clock.now_ms()).returning(users.c.id)
        return connection.execute(made).scalar_one()

    def change(self, actor: Actor, user_id: int, role: str, is_active: bool, team_ids: Sequence[int]) -> None:
        """Change role, state and teams; the account's sessions end, and its API tokens when it is switched off.

        Raises InvalidForm.
        """
        if role not in ROLE_NAMES:
            raise InvalidForm({"role": f"Choose one of {', '.join(ROLE_NAMES)}."})
        with self._database.write() as connection:
            old = _account(connection, users.c.id == user_id)
            if old is None:
                raise InvalidForm({"": "There is no such account."})
            if old.role == Role.ADMIN and (role != "admin" or not is_active) and _admins(connection) == 1:
                raise InvalidForm({"role": "This is the last administrator: make another one first."})
            connection.execute(update(users).where(users.c.id == user_id).values(role=role, is_active=is_active))
            _set_teams(connection, user_id, team_ids)
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))
            if not is_active:
                connection.execute(delete(api_tokens).where(api_tokens.c.user_id == user_id))
            before = {"role": old.role.label, "active": old.is_active, "teams": [team.id for team in old.teams]}
            now = {"role": role, "active": is_active, "teams": list(team_ids)}
            self._log.record(connection, actor, "change account", f"account {old.name}", before, now)

    def set_password(self, actor: Actor, user_id: int, encoded: str) -> None:
        """Set the password; all sessions and API tokens of the account end, since a stranger may have begun them."""
        with self._database.write() as connection:
            connection.execute(update(users).where(users.c.id == user_id).values(password=encoded))
            ended = _end_access(connection, user_id)
            self._log.record(connection, actor, "set password", f"account {actor.name}", None, ended)

    def end_access(self, actor: Actor, user_id: int) -> None:
        """End all sessions and API tokens of an account. Raises InvalidForm."""
        with self._database.write() as connection:
            own = _account(connection, users.c.id == user_id)
            if own is None:
                raise InvalidForm({"": "There is no such account."})
            ended = _end_access(connection, user_id)
            self._log.record(connection, actor, "end access", f"account {own.name}", None, ended)

    def replace_encoding(self, user_id: int, encoded: str) -> None:
        """Store the same password encoded with today's parameters; nothing else changes."""
        with self._database.write() as connection:
            connection.execute(update(users).where(users.c.id == user_id).values(password=encoded))

    def _unique(self, field: str, name: str) -> "_NameTaken":
        return _NameTaken(field, name)


class _NameTaken:
    """Turns a violated constraint into the fault of a field."""

    def __init__(self, field: str, name: str) -> None:
        self._field, self._name = field, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IntegrityError):
            raise InvalidForm({self._field: f"{self._name} exists already."}) from error


def _check(field: str, value: str, rule: re.Pattern[str], fault: str) -> None:
    if not rule.fullmatch(value):
        raise InvalidForm({field: fault})


def _account(connection: Connection, which: Any) -> Account | None:
    wanted = select(users, identities.c.subject).outerjoin(identities, identities.c.user_id == users.c.id).where(which)
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    own = select(teams).join(memberships).where(memberships.c.user_id == row.id).order_by(teams.c.name)
    found = tuple(Team(*each) for each in connection.execute(own))
    is_linked = row.subject is not None
    return Account(row.id, row.name, Role.named(row.role), row.is_active, row.password, found, is_linked)


def _end_access(connection: Connection, user_id: int) -> dict[str, int]:
    """Numbers of the sessions and API tokens that have ended, for the record."""
    sessions_ended = connection.execute(delete(sessions).where(sessions.c.user_id == user_id)).rowcount
    tokens_ended = connection.execute(delete(api_tokens).where(api_tokens.c.user_id == user_id)).rowcount
    return {"sessions": sessions_ended, "api_tokens": tokens_ended}


def _admins(connection: Connection) -> int:
    wanted = select(func.count()).select_from(users).where(users.c.role == "admin", users.c.is_active)
    return connection.execute(wanted).scalar_one()


def _set_teams(connection: Connection, user_id: int, team_ids: Sequence[int]) -> None:
    connection.execute(delete(memberships).where(memberships.c.user_id == user_id))
    known = set(connection.execute(select(teams.c.id)).scalars())
    if unknown := [each for each in team_ids if each not in known]:
        raise InvalidForm({"teams": f"There is no team {unknown[0]}."})
    for team_id in dict.fromkeys(team_ids):
        connection.execute(insert(memberships).values(user_id=user_id, team_id=team_id))
