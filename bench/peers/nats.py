"""NATS JetStream: one server, file storage, synced by its own interval of two minutes; driven by the Go driver."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.build import go_program
from bench.peers.driver import Driven, go_driver
from bench.peers.processes import free_ports, started
from bench.peers.workloads import BATCHED, OPEN, SINGLE, SINGLE_256, Shape

SERVER = "github.com/nats-io/nats-server/v2"
SHAPES = {
    SINGLE.name: Shape(),
    OPEN.name: Shape(),
    SINGLE_256.name: Shape(),
    BATCHED.name: Shape(loop="pipelined", threads=2, clients=2),
}


@contextmanager
def running() -> Iterator[Driven]:
    server = go_program("nats-server", SERVER)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-nats-") as name:
        folder = Path(name)
        (port,) = free_ports(1)
        line = [str(server), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "data")]
        with started("nats", line, folder) as broker:
            broker.wait_for("Server is ready")
            yield Driven("nats", {"server": broker.process.pid}, go_driver(), "nats", f"127.0.0.1:{port}", SHAPES)
