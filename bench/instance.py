"""The Penstock to measure: one that runs already, or one of our own in a temporary directory."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InstanceError
from bench.generator import Target
from bench.settings import Settings

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Instance:
    """A running `penstock up`; `facts` is its ready file."""

    data: Path
    facts: dict[str, Any]

    @property
    def pids(self) -> dict[str, int]:
        return {name: pid for name, pid in self.facts["pids"].items() if isinstance(pid, int)}

    def prepare(self, settings: Settings) -> Target:
        """Create the topics and an application that may use them, through the command line like everybody."""
        app = f"bench-{secrets.token_hex(4)}"
        made = json.loads(self.command("app", "create", app, "-o", "json"))
        prefix = settings.topic_pattern.partition("%d")[0]
        self.command("app", "grant", app, "--send", f"{prefix}*", "--pull", f"{prefix}*", "--pull", settings.group)
        options = ("--queues", str(settings.queues), "--durability", settings.durability)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda name: self.command("topic", "create", name, *options), settings.topic_names()))
        return Target(
            self._address("producer_proxy"), self._address("consumer_proxy"), app, made["key_id"], made["secret"]
        )

    def command(self, *arguments: str) -> str:
        """Run `penstock …` against this instance and return what it printed."""
        line = [*PENSTOCK, *arguments, "--data", str(self.data)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        if done.returncode:
            raise InstanceError(f"penstock {' '.join(arguments)}: {_last_line(done.stderr or done.stdout)}")
        return done.stdout

    def _address(self, name: str) -> tuple[str, int]:
        place = self.facts[name]
        return place["host"], place["port"]


def running(data: Path) -> Instance:
    """The instance that serves `data` now."""
    try:
        facts = json.loads((data / "up.json").read_text())
        os.kill(facts["pids"]["engine"], 0)
    except (OSError, ValueError, KeyError) as fault:
        raise InstanceError(
            f"no penstock up is serving {data}; start one, or leave --data out to have one started"
        ) from fault
    return Instance(data, facts)


@contextmanager
def own() -> Iterator[Instance]:
    """Start `penstock up` in a temporary directory (TMPDIR chooses the disk), and end it and its data afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        data, ready, log = Path(folder) / "data", Path(folder) / "ready.json", Path(folder) / "up.log"
        line = [*PENSTOCK, "up", "--data", str(data), "--ports", "auto", "--ready-file", str(ready)]
        with log.open("wb") as out:
            process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield Instance(data, _wait_ready(process, ready, log))
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
