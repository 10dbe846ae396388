"""A whole console in this process: real database, configuration store in memory, no engine."""

import re
from dataclasses import dataclass, replace
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from common.clock import FakeClock
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView
from console.application import make_application
from console.asking.topic_wish import DEFAULTS
from console.database.action_log import Actor
from console.database.console_database import ConsoleDatabase
from console.database.sessions import SignedIn
from console.installation.broker_queries import BrokerQueries
from console.installation.configuration import Configuration
from console.parts import ConsoleParts, make_parts
from console.security.origins import Origins

SETUP = Actor("setup", "")
WISH = {**DEFAULTS, "name": "orders", "description": "Orders that are paid"}


@dataclass
class RunningConsole:
    """A console and its collaborators; `as_role` gives a browser that is signed in."""

    parts: ConsoleParts
    store: MemoryConfigStore
    clock: FakeClock

    def __post_init__(self) -> None:
        self.app = make_application(self.parts)
        self.team_id = self.parts.accounts.add_team(SETUP, "shop")
        self.other_team_id = self.parts.accounts.add_team(SETUP, "bank", "bank.")

    def visitor(self) -> FlaskClient:
        return self.app.test_client()

    def account(self, name: str, role: str, *team_ids: int, password: str | None = None) -> SignedIn:
        """A session of a new account."""
        made = self.parts.accounts.get(self.parts.accounts.add(SETUP, name, role, team_ids, password))
        assert made is not None
        return self.parts.sessions.open(made)

    def browser(self, session: SignedIn) -> "Browser":
        client = self.visitor()
        client.set_cookie("penstock", session.token)
        return Browser(client, session)

    def as_role(self, role: str, name: str = "") -> "Browser":
        """A browser of a new account with the role; an owner is in team `shop`."""
        teams = (self.team_id,) if role == "owner" else ()
        return self.browser(self.account(name or role, role, *teams))

    def with_parts(self, **others: Any) -> "RunningConsole":
        """The same console with other collaborators."""
        self.parts = replace(self.parts, **others)
        self.app = make_application(self.parts)
        return self


@dataclass
class Browser:
    client: FlaskClient
    session: SignedIn

    def get(self, path: str, **more: Any) -> TestResponse:
        return self.client.get(path, **more)

    def post(self, path: str, **fields: Any) -> TestResponse:
        return self.client.post(path, data={"csrf": self.session.csrf, **fields})

    def ask(self, **fields: str) -> int:
        """Ask for a topic; returns the request's number."""
        teams = [str(team.id) for team in self.session.account.teams]
        answer = self.post("/requests", **{**WISH, "team": (teams or [""])[0], **fields})
        assert answer.status_code == 303, text_of(answer)
        return int(answer.location.rpartition("/")[2])


def make_console(url: str) -> RunningConsole:
    """A console on a database that has its schema."""
    database = ConsoleDatabase(url)
    store, clock = MemoryConfigStore(), FakeClock()
    view = ConfigView(store, clock=clock)
    configuration = Configuration(store, view, clock)
    parts = make_parts(clock, database, configuration, BrokerQueries(view, b""), Origins("", "127.0.0.1"))
    return RunningConsole(parts, store, clock)


def text_of(answer: TestResponse) -> str:
    """The words of a page, without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", answer.get_data(as_text=True)).split())
