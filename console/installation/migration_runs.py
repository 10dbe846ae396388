"""Commands of `penstock migrate` that a page has begun: each is a process of its own, whose lines the page shows.

A course may take hours and holds a fence for seconds. Its process outlives the console, and needs a client of Kafka,
which the console does not load.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from common.address import Address
from common.config.errors import StoreUnavailable
from console.installation.command_environment import environment_of
from migration.errors import PlanBusy
from migration.recipes.course import COMMANDS

STATUS_S_MAX = 20.0
SHOWN_BYTES_MAX = 32 << 10
LINES_MAX = 200
FILE_BYTES_MAX = 1 << 20


class RunLines(NamedTuple):
    """The last output of the commands of one plan. `is_running`: one that this console has begun runs."""

    lines: list[str]
    is_running: bool


class MigrationRuns:
    """
    Args:
        directory: for the lines of each plan.
        options: of commands, which say where the configuration is; empty: none can be begun.
        engine: asked for the engine of the only broker group before each command; None: commands find them.
    """

    def __init__(
        self,
        directory: Path | None,
        options: Sequence[str],
        engine: Callable[[], tuple[str, int] | None] = lambda: None,
    ) -> None:
        self._directory, self._options, self._engine = directory, tuple(options), engine
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def is_possible(self) -> bool:
        return self._directory is not None and bool(self._options)

    def begin(self, plan: str, command: str, accepted: Sequence[str], who: str) -> None:
        """Begin a command on a plan, and return at once.

        Raises:
            PlanBusy: a command that this console has begun is at work.
            StoreUnavailable: the console does not know where the configuration is.
        """
        if self._directory is None or not self._options:
            raise StoreUnavailable("the console was not told where commands find the configuration")
        assert command in (*COMMANDS, "resume")
        accepts = [part for gate in accepted for part in ("--accept", gate)]
        with self._lock:
            if plan in self._running:
                raise PlanBusy(f"plan {plan}: a command that was begun here is still at work")
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            shown = " ".join(["penstock", "migrate", command, *accepts, plan])
            with self._file(plan).open("ab") as out:
                if out.tell() > FILE_BYTES_MAX:
                    out.truncate(0)
                out.write(f"{_now()} {who}: {shown}\n".encode())
                out.flush()
                process = subprocess.Popen(
                    self._line(command, plan, *accepts), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    env=environment_of(who), start_new_session=True,
                )  # fmt: skip
            self._running[plan] = process
        threading.Thread(target=self._wait, args=(plan, process), name=f"migrate {plan}", daemon=True).start()

    def _wait(self, plan: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            with self._file(plan).open("ab") as out:
                out.write(f"{_now()} {'done' if code == 0 else f'ended with exit code {code}'}\n".encode())
            del self._running[plan]

    def lines(self, plan: str) -> RunLines:
        """The latest lines of a plan's commands."""
        if self._directory is None:
            return RunLines([], False)
        is_running = plan in self._running
        try:
            with self._file(plan).open("rb") as found:
                found.seek(max(0, found.seek(0, os.SEEK_END) - SHOWN_BYTES_MAX))
                text = found.read(SHOWN_BYTES_MAX).decode(errors="replace")
        except OSError:
            text = ""
        return RunLines(text.splitlines()[-LINES_MAX:], is_running)

    def status(self, plan: str) -> dict[str, Any] | str:
        """`penstock migrate status`, which asks Kafka and the engines; or why there is no answer, one sentence."""
        if not self._options:
            return "The console was not told where commands find the configuration."
        if not self._asking.acquire(blocking=False):  # each question is a process
            return "Another page asks at this moment: try again."
        try:
            done = subprocess.run(
                self._line("status", plan, "-o", "json"), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=STATUS_S_MAX, env=environment_of(""), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"Kafka or the engines have not answered within {STATUS_S_MAX:.0f} seconds."
        finally:
            self._asking.release()
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            return said[-1] if said else f"The command has ended with exit code {done.returncode}."
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _line(self, command: str, plan: str, *options: str) -> list[str]:
        """The name of a plan may look like an option, so it comes last."""
        engine = self._engine()
        more = [] if engine is None else ["--engine", f"{Address(*engine)}"]
        return [sys.executable, "-m", "penstock", "migrate", command, *options, *self._options, *more, "--", plan]

    def _file(self, plan: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{plan}.log"


def _now() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S")
