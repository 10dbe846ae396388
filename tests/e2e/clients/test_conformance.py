"""Every client through the same cases, one driver program per language for all of them; clients/conformance/README.md.

PENSTOCK_WRITE_CONFORMANCE=1 writes the table of that page from the run.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.conformance_cases import CASES, GROUP, TOPIC
from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock

PAGE = Path(__file__).resolve().parents[3] / "clients" / "conformance" / "README.md"
TABLE = "\n## Table\n"
passed: set[tuple[str, str]] = set()
languages: list[str] = []


class DriverClient:
    """The driver program of one language. A case opens it on the fake that the case has."""

    def __init__(self, language: str) -> None:
        self._process = subprocess.Popen(
            thrift_toolchains.program(language, "conformance"),
            env=thrift_toolchains.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.language = language
        self._defaults: dict[str, Any] = {}

    def on(self, fake: FakePenstock) -> "DriverClient":
        self._defaults = {
            "producer": fake.producer_endpoints,
            "consumer": fake.consumer_endpoints,
            "app": fake.app,
            "key_id": fake.key_id,
            "secret": fake.secret,
            "topic": TOPIC,
            "group": GROUP,
            "deadline_ms": 10_000,
            "buffered": False,
            "tls_ca": "",
        }
        self.open()
        return self

    def open(self, **changes: Any) -> None:
        assert not self._ask("open", **{**self._defaults, **changes})

    def send(self, *messages: dict[str, str]) -> list[dict[str, Any]]:
        return self._ask("send", messages=messages)["results"]

    def pull(self, most: int = 10, wait_ms: int = 1_000) -> dict[str, Any]:
        return self._ask("pull", max=most, wait_ms=wait_ms)

    def settle(self, verdict: str, index: int = 0, delay_ms: int = 0, reason: str = "") -> None:
        assert not self._ask("settle", verdict=verdict, index=index, delay_ms=delay_ms, reason=reason)

    def flush(self) -> dict[str, Any]:
        return self._ask("flush")

    def close(self) -> None:
        self._ask("close")

    def end(self) -> int:
        """Ends the program by the end of its input; its exit code."""
        self._process.stdin.close()
        code = self._process.wait(20)
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the driver ended with code {self._process.wait(20)} at {do}"
        return json.loads(line)


@pytest.fixture(scope="module", params=thrift_toolchains.LANGUAGES)
def driver(request) -> Iterator[DriverClient]:
    made = DriverClient(request.param)
    languages.append(request.param)
    yield made
    made.kill()


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    if os.environ.get("PENSTOCK_WRITE_CONFORMANCE"):
        before = PAGE.read_text().split(TABLE)[0]
        PAGE.write_text(f"{before}{TABLE}\n{_table()}")


def _table() -> str:
    head = ["case", *languages]
    rows = [[each, *("yes" if (name, each) in passed else "**no**" for name in languages)] for each in CASES]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


@pytest.mark.parametrize("sentence", CASES)
def test_the_client_conforms(driver: DriverClient, sentence: str):
    with FakePenstock(producers=2, consumers=2) as fake:
        CASES[sentence](fake, driver.on(fake))
        driver.close()
    passed.add((driver.language, sentence))


def test_the_driver_ends_with_its_input(driver: DriverClient):
    assert driver.end() == 0
