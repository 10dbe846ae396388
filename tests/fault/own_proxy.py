"""Additional proxy of a test, for the engine of a running Penstock."""

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.e2e.running import RunningPenstock
from tests.waiting import until

READY_S_MAX = 20.0


def secrets_key(penstock: RunningPenstock) -> list[str]:
    """The option by which a proxy finds the secrets of applications, where they are not in the configuration."""
    key = penstock.data / "secrets.key"
    return ["--secrets-key", str(key)] if key.exists() else []


class OwnProxy:
    """Listens on a port of its own choice; a new one after each `start()`.

    Args:
        options: of the proxy, beside those that say where everything is.
        wrapper: what its command is an argument of, such as `unshare`.
        kind: of the proxy.
    """

    def __init__(
        self, penstock: RunningPenstock, *options: str, wrapper: Sequence[str] = (), kind: str = "producer_proxy"
    ) -> None:
        facts = penstock.refresh()
        engine = facts["engine"]
        self._command = [
            *wrapper, sys.executable, "-P", "-m", kind, "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0",
            "--engine", f"{engine['host']}:{engine['port']}", "--config", facts["config"],
            "--cluster-key", facts["cluster_key"], *secrets_key(penstock), *options,
        ]  # fmt: skip
        self._log = penstock.data / "logs" / "own_proxy.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}

    def start(self) -> "OwnProxy":
        reading, writing = os.pipe()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--ready-fd", str(writing)], pass_fds=[writing], stdout=log, stderr=log
            )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert select.select([pipe], [], [], READY_S_MAX)[0], self.told()
            line = pipe.readline()
        assert line, self.told()
        self.facts = json.loads(line)
        return self

    def refused(self) -> str:
        """Start it where it must refuse, and return its one line of output."""
        done = subprocess.run(self._command, capture_output=True, text=True, timeout=READY_S_MAX, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        return done.stderr.splitlines()[-1]

    def told(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    @property
    def address(self) -> tuple[str, int]:
        return self.facts["host"], self.facts["port"]

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.facts['ops_port']}/metrics", timeout=10).read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))

    def readiness(self) -> str:
        """The text of /readyz, whether it is ready or not."""
        try:
            return (
                urllib.request.urlopen(f"http://127.0.0.1:{self.facts['ops_port']}/readyz", timeout=10).read().decode()
            )
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def backlog(self) -> int:
        """Entries that wait in its buffers."""
        return int(self.metric("penstock_buffer_entries"))

    def wait_drained(self, deadline_s: float = 60.0) -> None:
        until(lambda: self.backlog() == 0, f"the backlog is in the engine:\n{self.told()}", deadline_s)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(15)
            self._process = None

    def __enter__(self) -> "OwnProxy":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
