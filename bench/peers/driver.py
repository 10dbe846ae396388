"""Runs a driver against a running system, and reads the servers' CPU when the driver opens and closes the window."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

from bench.errors import RunError
from bench.peers.build import JAVA_DRIVER, go_program, java_driver_classpath
from bench.peers.figures import DRIVER, Figures, from_driver
from bench.peers.processes import last_lines, spawn, stop
from bench.peers.workloads import SIZE, PeerWorkload, Shape, Terms
from bench.servers import Sampler

OVERTIME_S = 90.0  # for creating topics, connecting, and settling; later the driver is killed


@dataclass(frozen=True)
class Driven:
    """A running system and the command line of its driver."""

    name: str
    pids: dict[str, int]  # of its servers
    command: list[str]
    kind: str  # the driver's name for the system
    servers: str  # addresses for its client library
    shapes: Mapping[str, Shape]  # by workload
    env: Mapping[str, str] = field(default_factory=dict)
    patience_ms: int = 0  # of the library for one request; 0: its default
    copies: int = 1  # of each message; with more than one, an answer means that all in-sync nodes have it

    def answers(self, workload: PeerWorkload) -> bool:
        """Whether this system supports the workload."""
        return workload.name in self.shapes

    def run(self, workload: PeerWorkload, terms: Terms) -> Figures:
        """Run one workload: warm-up at full load, then the window.

        Raises:
            RunError: the driver broke off or printed something else than figures.
        """
        line = [*self.command, *arguments(self, workload, terms)]
        with tempfile.TemporaryFile("w+") as complaints:
            process = spawn(line, stdout=subprocess.PIPE, stderr=complaints, text=True, env={**os.environ, **self.env})
            sampler = Sampler({**self.pids, DRIVER: process.pid})
            deadline = Timer(terms.seconds + terms.warmup_s + OVERTIME_S, process.kill)
            deadline.start()
            try:
                assert process.stdout is not None
                last = follow(process.stdout, sampler)
                code = process.wait()
            finally:
                deadline.cancel()
                stop(process)
            complaints.seek(0)
            if code or not last:
                raise RunError(
                    f"{self.name}, {workload.name}: driver ended with {code}: {last_lines(complaints.read())}"
                )
        return from_driver(self.name, workload.name, last, sampler.uses)


def follow(lines: Iterator[str], sampler: Sampler) -> str:
    """Reads a driver to its end, samples as the window opens and closes, and returns its last line."""
    last = ""
    for line in lines:
        last = line.strip()
        if last in ("opens", "closes"):
            sampler.on_window(last == "opens")
    return last


def arguments(driven: Driven, workload: PeerWorkload, terms: Terms) -> list[str]:
    shape = driven.shapes[workload.name]
    clients = terms.clients if terms.clients and shape.loop == "sync" else shape.clients
    given = {
        "system": driven.kind, "servers": driven.servers, "loop": shape.loop, "threads": shape.threads, "clients": clients,
        "prefix": workload.prefix, "topics": workload.topics, "queues": workload.queues, "size": SIZE, "batch": shape.batch,
        "consumers": shape.consumers, "most": shape.most, "copies": driven.copies, "patience": driven.patience_ms, "fill": shape.fill,
        "rate": workload.rate, "warmup": terms.warmup_s,
        "seconds": terms.seconds,
    }  # fmt: skip
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def java_driver(folder: Path) -> list[str]:
    """Return the start of the Java driver's command line.

    RocketMQ's client writes a log into the home directory, so the driver gets a temporary one.
    """
    return [
        "java",
        "-Xms512m",
        "-Xmx512m",
        "-XX:+UseG1GC",
        f"-Duser.home={folder}",
        "-cp",
        java_driver_classpath(),
        JAVA_DRIVER,
    ]


def go_driver() -> list[str]:
    return [str(go_program("driver", "."))]
