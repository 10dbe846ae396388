"""A real `penstock up` for tests: started as a user starts it, asked through the command line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.waiting import until

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
READY_S_MAX = 30.0
STOP_S_MAX = 15.0
COMMAND_S_MAX = 60.0


class Application(NamedTuple):
    app: str
    key_id: str
    secret: str


class RunningPenstock:
    """One data directory and the `up` that serves it.

    Args:
        wrapper: what `penstock up` is an argument of, such as `unshare`.
    Attributes:
        facts: the ready file as of the last `refresh()`.
        ready_s: how long the last start took.
    """

    def __init__(
        self, data: Path, *options: str, environment: dict[str, str] | None = None, wrapper: Sequence[str] = ()
    ) -> None:
        self.data = data
        self.ready_file = data.with_name(data.name + ".ready.json")
        self._options, self._wrapper = [*options], [*wrapper]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self.output: list[str] = []
        self.facts: dict[str, Any] = {}
        self.ready_s = 0.0

    def start(self) -> "RunningPenstock":
        """Start it and wait until it serves."""
        began = time.monotonic()
        line = [
            *self._wrapper,
            *PENSTOCK,
            "up",
            "--data",
            str(self.data),
            "--ports",
            "auto",
            "--ready-file",
            str(self.ready_file),
        ]
        self._process = subprocess.Popen(
            [*line, *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        threading.Thread(target=lambda: self.output.extend(self._process.stdout), daemon=True).start()
        until(lambda: self.ready_file.exists() or self.died(), "penstock up serves", READY_S_MAX)
        self.ready_s = time.monotonic() - began
        self.refresh()
        return self

    def died(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(
                f"penstock up ended with code {self._process.returncode}:\n" + self.told() + self.logs()
            )
        return False

    def told(self) -> str:
        """Return its output so far."""
        return "".join(self.output)

    def logs(self) -> str:
        """Return the ends of the processes' logs, for a failure's message."""
        found = sorted((self.data / "logs").glob("*.log")) if (self.data / "logs").exists() else []
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}\n" for path in found)

    def refresh(self) -> dict[str, Any]:
        self.facts = json.loads(self.ready_file.read_text())
        return self.facts

    def _place(self, name: str) -> tuple[str, int]:
        return self.facts[name]["host"], self.facts[name]["port"]

    @property
    def producer(self) -> tuple[str, int]:
        return self._place("producer_proxy")

    @property
    def consumer(self) -> tuple[str, int]:
        return self._place("consumer_proxy")

    @property
    def engine(self) -> tuple[str, int]:
        return self._place("engine")

    @property
    def pids(self) -> dict[str, int]:
        return self.facts["pids"]

    def call(self, *arguments: str, data: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
        """Run a command against this instance; its exit code is the caller's to judge."""
        line = [*PENSTOCK, *arguments, "--data", str(self.data)]
        return subprocess.run(line, input=data, capture_output=True, timeout=COMMAND_S_MAX, check=False)

    def run(self, *arguments: str) -> Any:
        """Run a command with `-o json`, which must succeed; returns the parsed answer (None when it printed nothing)."""
        done = self.call(*arguments, "-o", "json")
        assert done.returncode == 0, f"penstock {' '.join(arguments)}: {done.stderr.decode()}{done.stdout.decode()}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    def application(
        self, name: str, send: Iterable[str] = (), pull: Iterable[str] = (), dead_letters: Iterable[str] = ()
    ) -> Application:
        """Create an application with these grants."""
        made = self.run("app", "create", name)
        grants = [part for pattern in send for part in ("--send", pattern)]
        grants += [part for pattern in pull for part in ("--pull", pattern)]
        grants += [part for pattern in dead_letters for part in ("--dead-letters", pattern)]
        if grants:
            self.run("app", "grant", name, *grants)
        return Application(made["app"], made["key_id"], made["secret"])

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to one process; returns its pid."""
        pid = self.refresh()["pids"][name]
        os.kill(pid, number)
        return pid

    def wait_replaced(self, name: str, pid: int) -> None:
        """Wait until a process other than `pid` serves under that name."""
        until(lambda: self.refresh()["pids"][name] not in (pid, 0), f"{name} is started again", READY_S_MAX)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it as Ctrl-C does; returns the exit code."""
        self._process.send_signal(number)
        return self._process.wait(STOP_S_MAX)

    def restart(self) -> "RunningPenstock":
        """Stop it and start it again on the same directory, which keeps the ports while they are free."""
        assert self.stop() == 0, self.told()
        return self.start()

    def end(self) -> None:
        """End all processes, whatever the test did."""
        if self._process and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
