"""A Penstock with its console to measure: its database, an administrator with a session and a token, and requests to it."""

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.errors import InstanceError, RunError
from bench.figures import Figure
from bench.instance import BenchInstance, own
from common.clock import SystemClock
from console.database.accounts import Accounts
from console.database.action_log import ActionLog, Actor
from console.database.api_tokens import ApiTokens
from console.database.console_database import ConsoleDatabase
from console.database.sessions import Sessions

BENCH = Actor("bench", "")
TEAM = "bench"
TIMEOUT_S = 60.0


class TimedAnswer(NamedTuple):
    """One answer: the time until its head was there, its status and its body."""

    first_byte_s: float
    status: int
    body: bytes


class ConsoleDesk:
    """
    Args:
        instance: a running Penstock with a console.
    """

    def __init__(self, instance: BenchInstance) -> None:
        if "console" not in instance.facts.get("pids", {}):
            raise InstanceError("the console was not started: install the extra penstock[console]")
        self.instance = instance
        place = instance.facts["console"]
        self.place = place["host"], place["port"]
        self.database = ConsoleDatabase(f"sqlite:///{instance.facts['data']}/console/console.db")
        self._log = ActionLog(self.database, SystemClock())
        self.accounts = Accounts(self.database, self._log, SystemClock())
        self.team_id = self.accounts.add_team(BENCH, TEAM)

    def account(self, name: str, role: str = "admin") -> str:
        """Make an account; returns the cookie of its session."""
        made = self.accounts.get(self.accounts.add(BENCH, name, role, [self.team_id]))
        assert made is not None
        return f"penstock={Sessions(self.database, self.accounts, SystemClock()).open(made).token}"

    def token(self, name: str) -> str:
        """A token of an account for the API."""
        own = self.accounts.find(name)
        assert own is not None
        tokens = ApiTokens(self.database, self.accounts, self._log, SystemClock())
        return tokens.make(BENCH, own, "bench", own.role.label, 1)

    def close(self) -> None:
        self.database.close()


class PageClient:
    """One kept connection to the console."""

    def __init__(self, place: tuple[str, int], **headers: str) -> None:
        self._connection = http.client.HTTPConnection(*place, timeout=TIMEOUT_S)
        self._headers = headers

    def get(self, path: str) -> TimedAnswer:
        return self._ask("GET", path, None)

    def post(self, path: str, value: Any) -> Any:
        """A call of the API; returns its JSON. Raises RunError."""
        answer = self._ask("POST", path, json.dumps(value).encode())
        if answer.status != 200:
            raise RunError(f"POST {path}: status {answer.status}: {answer.body[:300].decode('utf-8', 'replace')}")
        return json.loads(answer.body)

    def _ask(self, method: str, path: str, body: bytes | None) -> TimedAnswer:
        began = time.perf_counter()
        headers = {**self._headers, **({"Content-Type": "application/json"} if body is not None else {})}
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            first_byte_s = time.perf_counter() - began
            return TimedAnswer(first_byte_s, answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise RunError(f"{method} {path}: {error!r}") from error

    def close(self) -> None:
        self._connection.close()


@contextmanager
def console_desk(*options: str) -> Iterator[ConsoleDesk]:
    """Run a Penstock with a console in a temporary directory."""
    with own("--console", *options) as instance:
        desk = ConsoleDesk(instance)
        try:
            yield desk
        finally:
            desk.close()


def load_average() -> Figure:
    """The machine's load during the last minute: other processes share its cores."""
    return Figure("load average", os.getloadavg()[0], "processes")
