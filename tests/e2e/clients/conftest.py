import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.clients.access import Access, of_fake, of_running
from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock

pytest.register_assert_rewrite("tests.e2e.clients.conformance")
RUN_DEADLINE_S = 60
# In `make test` the newer clients show the long cases, on a running Penstock, by their short forms on the fake alone.
LANGUAGES_IN_LONG_TESTS = [
    pytest.param(each, marks=pytest.mark.slow) if each in ("java", "node", "rust", "csharp") else each
    for each in thrift_toolchains.LANGUAGES
]


@pytest.fixture
def fake() -> Iterator[FakePenstock]:
    with FakePenstock(producers=2, consumers=2) as penstock:
        yield penstock


@pytest.fixture(params=["fake", "penstock up"])
def access(request) -> Access:
    """The same tests on the stand-in and on the real thing; what passes on one only shows which of them is wrong."""
    if request.param == "fake":
        return of_fake(request.getfixturevalue("fake"))
    return of_running(request.getfixturevalue("penstock_up"))


@pytest.fixture(params=thrift_toolchains.LANGUAGES)
def language(request) -> str:
    thrift_toolchains.build(request.param)
    return request.param


@dataclass
class Finished:
    """A program that has ended."""

    status: int
    out: str
    errors: str

    @property
    def report(self) -> dict:
        """The last JSON line, as demo_producer prints it."""
        return json.loads(self.out.splitlines()[-1])


@dataclass
class Seen:
    """One line of demo_consumer."""

    line: int
    key: str
    queue: int
    offset: int
    attempt: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> list["Seen"]:
        rows = [row.split("\t") for row in text.splitlines()]
        return [cls(int(a), key, int(b), int(c), int(d), digest) for a, key, b, c, d, digest in rows]


Run = Callable[..., Finished]


@pytest.fixture
def run() -> Run:
    """Runs one program of one language to its end: run("go", "send", secret, "--topic", "t", …)."""

    def run_program(language: str, name: str, secret: str, *arguments: object) -> Finished:
        done = subprocess.run(
            [*thrift_toolchains.program(language, name), *map(str, arguments)],
            env=thrift_toolchains.environment(PENSTOCK_SECRET=secret),
            capture_output=True,
            text=True,
            timeout=RUN_DEADLINE_S,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run_program


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    """A file as files are: empty lines, bytes that are no UTF-8, zeros, a long line, and no newline at the end."""
    path = tmp_path / "lines.bin"
    lines = [b"first\n", b"\n", b"\xff\xfe\x00binary\n", "prüfen\r\n".encode(), b"x" * 100_000 + b"\n"]
    path.write_bytes(b"".join(lines) + b"".join(b"line %d\n" % number for number in range(500)) + b"no newline")
    return path


def digests(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [hashlib.sha256(line).hexdigest() for line in file]


def assert_each_line_once_in_order_per_key(seen: list[Seen], path: Path, keys: int) -> None:
    """The proof of the whole path: every line arrived once, unchanged, with its key, in order within its key."""
    assert sorted(delivery.line for delivery in seen) == list(range(len(seen)))
    by_line = {delivery.line: delivery for delivery in seen}
    assert [by_line[number].digest for number in range(len(seen))] == digests(path)
    last: dict[str, int] = {}
    for delivery in seen:
        assert delivery.key == f"k{delivery.line % keys}"
        assert last.get(delivery.key, -1) < delivery.line
        last[delivery.key] = delivery.line
