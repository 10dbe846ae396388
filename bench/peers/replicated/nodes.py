"""Nodes of a system with replicas: started, struck by signals, started again, and always ended."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.peers.driver import Driven
from bench.peers.processes import READY_TIMEOUT_S, Started, spawn, stop


class PeerNode:
    """One server process.

    Args:
        up: what it prints when it serves.
    """

    def __init__(
        self, name: str, line: Sequence[str], folder: Path, up: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.name, self._line, self._folder, self._up, self._env = name, [*line], folder, up, env
        self._started: Started | None = None
        self._starts = 0

    def launch(self) -> None:
        """Start it, and do not wait until it serves. Each start has an output file of its own."""
        self._starts += 1
        output = self._folder / f"{self.name}-{self._starts}.out"
        env = {**os.environ, **(self._env or {})}
        with output.open("wb") as out:
            process = spawn(self._line, stdout=out, stderr=subprocess.STDOUT, cwd=self._folder, env=env)
        self._started = Started(self.name, process, output)

    def wait_up(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Raises InstanceError: it ended, or took too long."""
        assert self._started is not None
        self._started.wait_for(self._up, timeout_s)

    @property
    def pid(self) -> int:
        assert self._started is not None
        return self._started.process.pid

    def wait_end(self, timeout_s: float) -> None:
        """Raises subprocess.TimeoutExpired: it still runs."""
        assert self._started is not None
        self._started.process.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        return self._started is not None and self._started.process.poll() is None

    def strike(self, number: signal.Signals) -> None:
        assert self._started is not None
        self._started.process.send_signal(number)
        if number == signal.SIGKILL:
            self._started.process.wait()

    def restore(self, number: signal.Signals) -> None:
        """Undo a strike by this signal."""
        if number == signal.SIGSTOP:
            self.strike(signal.SIGCONT)
            return
        self.launch()
        self.wait_up()

    def end(self) -> None:
        if self._started is not None:
            if self._started.process.poll() is None:
                self._started.process.send_signal(signal.SIGCONT)
            stop(self._started.process)


class ReplicatedSystem(Protocol):
    """A running system whose messages are on several nodes before they are answered.

    Attributes:
        driven: loads it by its own client library.
        size: nodes in sync when it is whole.
    """

    @property
    def driven(self) -> Driven: ...

    @property
    def size(self) -> int: ...

    @property
    def steady(self) -> Sequence[Driven]:
        """Forms of its client library under which switch-overs are measured."""

    def leadership(self, told: str) -> tuple[str, int]:
        """The leading node ("-": none is known) and the number of nodes in sync; `told`: as the driver tells it."""

    def strike(self, leader: str, number: signal.Signals) -> None: ...

    def restore(self, leader: str, number: signal.Signals) -> None: ...


@dataclass(frozen=True)
class Cluster:
    """A peer.

    Args:
        nodes: by the name that its client library has for each.
        more: further forms of its client library, for switch-overs.
    """

    driven: Driven
    nodes: Mapping[str, PeerNode]
    size: int
    more: tuple[Driven, ...] = ()

    @property
    def steady(self) -> Sequence[Driven]:
        return (self.driven, *self.more)

    def leadership(self, told: str) -> tuple[str, int]:
        leader, _, count = told.partition(" ")
        return leader, int(count)

    def strike(self, leader: str, number: signal.Signals) -> None:
        self.nodes[leader].strike(number)

    def restore(self, leader: str, number: signal.Signals) -> None:
        self.nodes[leader].restore(number)


@contextmanager
def serving(nodes: Sequence[PeerNode]) -> Iterator[None]:
    """Start all, wait until all serve, and end all as the block is left."""
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_up()
        yield
    finally:
        for node in reversed(nodes):
            node.end()
