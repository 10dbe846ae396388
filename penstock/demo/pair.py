"""The producer's and the consumer's process: started, read while they run, stopped."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from typing import IO, Any

from penstock.demo.access import Access
from penstock.demo.check import Check
from penstock.demo.programs import DemoProgram, environment
from penstock.demo.source import DemoSource
from penstock.up.child import die_with

BATCH = 100
KEYS = 16
QUIET_S_MAX = 30.0  # time without progress after which the demo has stalled
ERROR_LINES = 3


class DemoProcess:
    """One of the two processes. A thread reads its output, so that it never blocks on a full pipe."""

    def __init__(self, program: DemoProgram, arguments: list[str], secret: str, on_line: Any) -> None:
        parent = os.getpid()
        self.language = program.language
        self.errors: deque[str] = deque(maxlen=ERROR_LINES)
        self.process = subprocess.Popen(
            [*program.command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment(), "PENSTOCK_SECRET": secret, "PYTHONUNBUFFERED": ""},
            encoding="utf-8",
            errors="replace",
            preexec_fn=lambda: die_with(parent),
        )
        self._readers = [
            threading.Thread(target=read_lines, args=(self.process.stdout, on_line), daemon=True),
            threading.Thread(target=read_lines, args=(self.process.stderr, self.errors.append), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def code(self) -> int | None:
        """The exit code once it has ended and its output was read."""
        code = self.process.poll()
        if code is not None:
            for reader in self._readers:
                reader.join(5)
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def complaint(self) -> str:
        return " | ".join(line.strip() for line in self.errors)


def read_lines(stream: IO[str], on_line: Any) -> None:
    for line in stream:
        on_line(line)


class Pair:
    """Both processes and their progress."""

    def __init__(
        self, source: DemoSource, access: Access, programs: tuple[DemoProgram, DemoProgram], facts: dict[str, Any]
    ) -> None:
        self.check = Check(source, KEYS)
        self.progress: dict[str, Any] = {"sent": 0, "retried": 0, "p50_ms": 0.0, "p99_ms": 0.0}
        self.began = time.monotonic()
        self._moved, self._moved_at = 0, self.began
        producer, consumer = programs
        common = ["--app", access.app, "--key-id", access.key_id, "--topic", access.topic]
        pulling = [*endpoint(facts, "consumer_proxy"), *common, "--group", access.group, "--count", str(source.count)]
        sending = [*endpoint(facts, "producer_proxy"), *common, "--file", str(source.path)]
        sending += ["--keys", str(KEYS), "--batch", str(source.batch(BATCH))]
        self.consumer = DemoProcess(consumer, pulling, access.secret, self.check.take)
        self.producer = DemoProcess(producer, sending, access.secret, self._on_progress)

    def _on_progress(self, line: str) -> None:
        try:
            self.progress.update(json.loads(line))
        except ValueError:
            self.producer.errors.append(line)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def fault(self) -> str:
        """The reason to stop waiting; "" while there is progress."""
        for role, running in (("producer", self.producer), ("consumer", self.consumer)):
            if running.code not in (None, 0):
                return f"the {running.language} {role} ended with code {running.code}: {running.complaint()}"
        moved = self.progress["sent"] + self.check.deliveries
        if moved != self._moved:
            self._moved, self._moved_at = moved, time.monotonic()
        if time.monotonic() - self._moved_at > QUIET_S_MAX:
            return f"no progress for {QUIET_S_MAX:.0f} s. {self.producer.complaint()} {self.consumer.complaint()}"
        return ""

    @property
    def finished(self) -> bool:
        return self.producer.code == 0 and self.consumer.code == 0

    def stop(self) -> None:
        self.producer.stop()
        self.consumer.stop()


def endpoint(facts: dict[str, Any], name: str) -> list[str]:
    return ["--endpoints", f"{facts[name]['host']}:{facts[name]['port']}"]
