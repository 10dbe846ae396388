"""The Penstock to measure: a running one, or a new one in a temporary directory."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.errors import InstanceError
from bench.generator import LoadTarget
from bench.settings import LoadSettings
from common.admin import applications, families, groups, topics
from common.admin.administrator import Administrator
from common.config.applying import wait_applied
from common.config.checks import is_family
from common.config.errors import ConfigError
from common.config.opening import open_store
from common.config.store import ConfigStore

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
READY_TIMEOUT_S = 20.0
APPLIED_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class BenchInstance:
    """A running `penstock up`; `facts` is its ready file."""

    facts: dict[str, Any]
    temporary: bool = False  # deleted with its data, so nothing is cleaned up in it

    @property
    def pids(self) -> dict[str, int]:
        return {name: pid for name, pid in self.facts["pids"].items() if isinstance(pid, int)}

    @property
    def log_folder(self) -> Path:
        return Path(self.facts["data"]) / "engine" / "log"

    @property
    def segments(self) -> set[str]:
        """Files of the log."""
        return {path.name for path in self.log_folder.glob("*.seg")}

    @property
    def log_bytes(self) -> int:
        """Bytes of the log on disk, preallocated space included."""
        return sum(path.stat().st_blocks * 512 for path in self.log_folder.iterdir())

    def now(self) -> "BenchInstance":
        """The same instance with its current process ids, which change at a restart.

        Raises:
            InstanceError: it does not serve.
        """
        return replace(self, facts=running(Path(self.facts["data"])).facts)

    def keep(self, names: Iterable[str], retention_ms: int) -> None:
        """Change the retention of topics."""
        with _store(self.facts["config"]) as store:
            admin = Administrator(store, "bench")
            for name in names:
                topics.set_topic(admin, name, topics.TopicSettings(retention_ms=retention_ms))

    @contextmanager
    def prepared(self, settings: LoadSettings) -> Iterator[LoadTarget]:
        """Topics, an application that may use them, and the group when it has an order; what was made here is deleted
        afterwards.

        Uses the functions of `penstock topic create` and `app create` directly: with one process per topic, 10,000
        topics would take an hour.

        Raises:
            InstanceError: the configuration could not be read or written.
        """
        with _store(self.facts["config"]) as store:
            admin = Administrator(store, "bench")
            prefix = settings.topic_pattern.partition("%d")[0]
            may = applications.Grants(send=(f"{prefix}*",), pull=(f"{prefix}*", settings.group))
            kind = families if settings.family else topics
            try:
                names = _missing(admin, settings, prefix)
                if names:
                    kind.create(
                        admin,
                        names,
                        topics.TopicSettings(queues=settings.queues, durability=_stored_durability(settings)),
                    )
                if settings.order != "none":
                    groups.create(admin, settings.group, groups.GroupSettings(order=settings.order))
                key = applications.create(admin, f"bench-{secrets.token_hex(4)}", may)
                late = wait_applied(store, store.version(), APPLIED_TIMEOUT_S)
            except ConfigError as fault:
                raise InstanceError(f"topics and application for the run: {fault}") from fault
            if late:
                raise InstanceError(
                    f"{', '.join(late)}: the configuration of the run was not applied in {APPLIED_TIMEOUT_S:g} s"
                )
            try:
                yield LoadTarget(
                    self._address("producer_proxy"), self._address("consumer_proxy"), key.app, key.key_id, key.secret
                )
            finally:
                if not self.temporary:
                    applications.delete(admin, key.app)
                    if settings.order != "none":
                        groups.delete(admin, settings.group)
                    for name in names:
                        _delete(admin, name)

    def _address(self, name: str) -> tuple[str, int]:
        place = self.facts[name]
        return place["host"], place["port"]


@contextmanager
def _store(url: str) -> Iterator[ConfigStore]:
    try:
        store = open_store(url)
    except ConfigError as fault:
        raise InstanceError(f"configuration {url}: {fault}") from fault
    with closing(store):
        yield store


def _missing(admin: Administrator, settings: LoadSettings, prefix: str) -> list[str]:
    """Names to create: those of topics, or of their family."""
    kind, names = ("family", [f"{prefix}*"]) if settings.family else ("topic", settings.topic_names())
    taken = set(admin.store.taken(kind, names))
    return [name for name in names if name not in taken]


def _delete(admin: Administrator, name: str) -> None:
    if is_family(name):
        families.delete(admin, name, lambda prefix: (), force=True)
    else:
        topics.delete(admin, name)


def _stored_durability(settings: LoadSettings) -> str | None:
    """The topics' durability; None for `default`. Calls name their durability, except with `default`."""
    return None if settings.durability == "default" else settings.durability


def running(data: Path) -> BenchInstance:
    """Return the running instance of the data directory `data`."""
    try:
        facts = json.loads((data / "up.json").read_text())
        os.kill(facts["pids"]["engine"], 0)
    except (OSError, ValueError, KeyError) as fault:
        raise InstanceError(
            f"no penstock up is serving {data}; start one, or leave --data out to have one started"
        ) from fault
    return BenchInstance(facts)


@contextmanager
def own(*more: str) -> Iterator[BenchInstance]:
    """Run `penstock up` with these options in a temporary directory, which is deleted afterwards.

    TMPDIR chooses the disk.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, up_in(Path(folder), *more) as instance:
        yield instance


@contextmanager
def up_in(folder: Path, *more: str) -> Iterator[BenchInstance]:
    """Run `penstock up` with these options during the block. A later one in the same folder goes on with its data."""
    data, ready, log = folder / "data", folder / "ready.json", folder / "up.log"
    line = [*PENSTOCK, "up", "--data", str(data), "--ports", "auto", "--ready-file", str(ready), *more]
    with log.open("wb") as out:
        process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield BenchInstance(_wait_ready(process, ready, log), temporary=True)
    finally:
        _stop(process)


def _wait_ready(process: subprocess.Popen, ready: Path, log: Path) -> dict[str, Any]:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not ready.exists():
        if process.poll() is not None:
            raise InstanceError(f"penstock up ended with code {process.returncode}: {_last_line(log.read_text())}")
        if time.monotonic() > deadline:
            raise InstanceError(
                f"penstock up was not ready within {READY_TIMEOUT_S:g} s: {_last_line(log.read_text())}"
            )
        time.sleep(0.02)
    return json.loads(ready.read_text())


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"
