"""Parts of a run beside a Penstock: a proxy with a buffer, a Redis, and the observer of the backlog."""

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from bench.errors import InstanceError
from bench.instance import BenchInstance

READY_S = 20.0
POLL_S = 0.1  # constant: each poll costs the proxy's loop one page, during the drain no more than before
ENTRIES = re.compile(r'penstock_buffer_entries\{store="(\w+)"\} (\S+)')


@contextmanager
def proxy(instance: BenchInstance, options: list[str]) -> Iterator[dict[str, Any]]:
    """Run a producer proxy with these options against the instance's engine; yield its ready line."""
    facts = instance.facts
    reading, writing = os.pipe()
    command = [
        sys.executable, "-P", "-m", "producer_proxy", "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--engine",
        f"{facts['engine']['host']}:{facts['engine']['port']}", "--config", facts["config"],
        "--cluster-key", facts["cluster_key"], "--secrets-key", facts["secrets_key"], "--ready-fd", str(writing), *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, pass_fds=[writing])
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            if not select.select([pipe], [], [], READY_S)[0] or not (line := pipe.readline()):
                raise InstanceError("the producer proxy did not start")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(READY_S)


@contextmanager
def redis_server(memory_mib_max: int) -> Iterator[str]:
    """Run a redis-server with the settings that the buffer requires, its append-only file in TMPDIR; yield its URL.

    0 MiB: no memory limit.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        raise InstanceError("redis-server is not installed")
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    settings = {
        "port": port, "bind": "127.0.0.1", "save": "", "appendonly": "yes", "appendfsync": "always",
        "maxmemory": f"{memory_mib_max}mb", "maxmemory-policy": "noeviction",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="penstock-bench-redis-") as folder:
        line = [
            binary,
            "--dir",
            folder,
            *(part for name, value in settings.items() for part in (f"--{name}", str(value))),
        ]
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        try:
            _wait_listening(process, port)
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise InstanceError("redis-server did not start")


class Backlog:
    """Polls the proxy's number of waiting entries until `stop()`."""

    def __init__(self, ops_port: int) -> None:
        self._url = f"http://127.0.0.1:{ops_port}/metrics"
        self.seen: list[tuple[float, dict[str, int]]] = [(time.monotonic(), self._ask())]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def highest(self) -> int:
        return max(sum(counts.values()) for _, counts in self.seen)

    def wait_empty(self, deadline_s: float) -> float:
        """Block until the backlog is empty and return that time; the deadline if it never was."""
        known, end = len(self.seen), time.monotonic() + deadline_s
        while time.monotonic() < end:
            for at, counts in self.seen[known:]:
                if not any(counts.values()):
                    return at
            time.sleep(POLL_S / 2)
        return end

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            try:
                counts = self._ask()
            except OSError:  # the proxy is too busy to answer: the run continues
                continue
            self.seen.append((time.monotonic(), counts))

    def _ask(self) -> dict[str, int]:
        """Number of waiting entries by store."""
        with urllib.request.urlopen(self._url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        found = [ENTRIES.match(line) for line in lines]
        return {match[1]: int(float(match[2])) for match in found if match}
