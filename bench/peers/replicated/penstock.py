"""Penstock: `up --replicas 2` with a ZooKeeper, driven through its producer proxy, by the native generator and by the
Java driver.

REPLICATED: a write is answered when all in-sync brokers have it in their page caches. `up` starts an ended broker
again by itself.
"""

import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import instance
from bench.errors import InstanceError
from bench.generator import require_native
from bench.measure import measure, settle
from bench.peers.build import broker_classpath
from bench.peers.driver import Driven, java_driver
from bench.peers.figures import Figures, from_outcome
from bench.peers.java import java_server
from bench.peers.penstock import settings_of
from bench.peers.processes import free_ports
from bench.peers.replicated.nodes import PeerNode, serving
from bench.peers.replicated.workloads import COPIED, SHAPES, STEADY
from bench.peers.workloads import PeerWorkload, Terms
from bench.replicas.group import MeasuredGroup, group_of, wait

NATIVE, JAVA = "penstock", "penstock-java"
REPLICAS = 2
PASSED = ("producer_proxy", "master", "slave")
TOLD_TIMEOUT_S = 30.0
ZOOKEEPER_HEAP = "128m"
ZOOKEEPER_UP, ZOOKEEPER_TIMEOUT_S = "binding to port", 30.0


@dataclass(frozen=True)
class Replicated:
    """A running instance, loaded by the native generator in `run` and by the Java driver through `driven`."""

    driven: Driven
    group: MeasuredGroup
    size: int = REPLICAS

    @property
    def steady(self) -> Sequence[Driven]:
        return (self.driven,)

    def run(self, workload: PeerWorkload, terms: Terms) -> Figures:
        settings = replace(settings_of(workload, terms), durability="replicated")
        served = replace(self.group.instance, facts={**self.group.instance.facts, "pids": self.group.pids})
        outcome = measure(f"{NATIVE}, {workload.name}", settings, served, lambda text: None)
        figures = from_outcome(NATIVE, workload.name, outcome)
        figures.servers[:] = [use for use in figures.servers if use.name in PASSED]
        return figures

    def leadership(self, told: str) -> tuple[str, int]:
        """From the group's record, whatever the driver tells."""
        record = self.group.record
        return (record.master, len(record.in_sync)) if record else ("-", 0)

    def strike(self, leader: str, number: signal.Signals) -> None:
        wait(self._is_told, "the process ids are those of now", TOLD_TIMEOUT_S)
        os.kill(self.group.instance.now().pids[leader], number)

    def _is_told(self) -> bool:
        """Whether `up` has told the ids of all processes since it started one again."""
        try:
            return all(os.path.exists(f"/proc/{pid}") for pid in self.group.instance.now().pids.values())
        except InstanceError:
            return False

    def restore(self, leader: str, number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self.strike(leader, signal.SIGCONT)


@contextmanager
def running() -> Iterator[Replicated]:
    require_native()  # the generator settles the topics
    copied, steady = (replace(settings_of(each, Terms(1, 0)), durability="replicated") for each in (COPIED, STEADY))
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-replicated-") as folder,
        zookeeper(Path(folder)) as url,
        instance.own("--replicas", str(REPLICAS), "--config", url) as own,
        group_of(own) as group,
    ):
        group.wait_in_sync()
        # The application of the latter may send to all topics of its prefix, so to the former's, too.
        with own.prepared(steady), own.prepared(copied) as target:
            settle(copied, target)
            settle(steady, target)
            env = {"PENSTOCK_APP": target.app, "PENSTOCK_KEY_ID": target.key_id, "PENSTOCK_SECRET": target.secret}
            place = f"{target.producer[0]}:{target.producer[1]}"
            pids = {name: pid for name, pid in group.pids.items() if name in PASSED}
            command = java_driver(Path(folder))
            yield Replicated(Driven(JAVA, pids, command, "penstock", place, SHAPES, env, copies=REPLICAS), group)


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """Run a ZooKeeper; yields the URL of a configuration there."""
    (port,) = free_ports(1)
    settings = folder / "zoo.cfg"
    settings.write_text(zookeeper_settings(folder / "zookeeper", port))
    java = java_server(
        "org.apache.zookeeper.server.quorum.QuorumPeerMain", broker_classpath("zookeeper"), folder, ZOOKEEPER_HEAP
    )
    with serving([PeerNode("zookeeper", [*java, str(settings)], folder, ZOOKEEPER_UP)]):
        wait(lambda: _serves(port), "ZooKeeper serves", ZOOKEEPER_TIMEOUT_S)
        yield f"zookeeper://127.0.0.1:{port}/bench"


def _serves(port: int) -> bool:
    """Whether requests are served. The port answers `ruok` earlier, and a session that begins then may hang."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(9) == b"Zookeeper"
    except OSError:
        return False


def zookeeper_settings(store: Path, port: int) -> str:
    """The documented configuration, of one server."""
    return f"""\
tickTime=500
dataDir={store}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""
