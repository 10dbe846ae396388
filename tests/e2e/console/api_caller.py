"""A person with a token for the API of a running console, made in its database as its pages make them."""

import json
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from common.clock import SystemClock
from console.database.accounts import Accounts
from console.database.action_log import ActionLog, Actor
from console.database.api_tokens import ApiTokens
from console.database.console_database import ConsoleDatabase
from console.database.user_requests import UserRequests
from tests.e2e.running import RunningPenstock

SETUP = Actor("setup", "")


class ApiCaller:
    """An administrator of team `shop`; `requests` is the console's own table of requests."""

    def __init__(self, penstock: RunningPenstock) -> None:
        self.path = Path(penstock.data) / "console" / "console.db"
        place = penstock.refresh()["console"]
        self.url = f"http://{place['host']}:{place['port']}"
        self.database = ConsoleDatabase(f"sqlite:///{self.path}")
        log = ActionLog(self.database, SystemClock())
        accounts = Accounts(self.database, log, SystemClock())
        self.team_id = accounts.add_team(SETUP, "shop")
        own = accounts.get(accounts.add(SETUP, "ada", "admin", [self.team_id]))
        assert own is not None
        self.token = ApiTokens(self.database, accounts, log, SystemClock()).make(SETUP, own, "test", "admin", 1)
        self.requests = UserRequests(self.database, log, SystemClock())

    def call(self, path: str, value: Any = None) -> tuple[int, Any]:
        """Status and JSON of a call; 0: the console did not answer."""
        body = None if value is None else json.dumps(value).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, None

    def states(self) -> dict[int, str]:
        """The state of every request, by its number, whatever the console does."""
        with sqlite3.connect(self.path, timeout=30) as connection:
            return dict(connection.execute("SELECT id, state FROM requests"))

    def close(self) -> None:
        self.database.close()
