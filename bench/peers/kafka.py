"""Kafka: one KRaft node as broker and controller, with the documented configuration.

acks=1: the answer comes from the page cache.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.peers.driver import Driven, java_driver
from bench.peers.kafka_node import UP, format_node, new_cluster_id, node_properties, server_line
from bench.peers.processes import free_ports, started
from bench.peers.workloads import BATCHED, BATCHED_256, CONSUMED, OPEN, SINGLE, SINGLE_256, Shape

HEAP = "1g"  # default of Kafka's scripts
START_S_MAX = 180.0
# The client library's defaults: batches of 16 KiB per partition, 5 ms of lingering, 32 MiB of memory.
PIPELINE = Shape(loop="pipelined", threads=1, clients=1)
SHAPES = {
    SINGLE.name: Shape(),
    OPEN.name: Shape(),
    CONSUMED.name: Shape(consumers=4, most=1000),
    SINGLE_256.name: Shape(),
    BATCHED.name: PIPELINE,
    BATCHED_256.name: PIPELINE,
}


class OneBroker(NamedTuple):
    """A broker of its own, with a folder for what runs beside it."""

    folder: Path
    address: str
    pid: int


@contextmanager
def one_broker(more: str = "") -> Iterator[OneBroker]:
    """A fresh broker with the documented configuration and `more` lines of it; gone after the block.

    Its data is in `kafka` below its folder. Raises InstanceError.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-kafka-") as name:
        folder = Path(name)
        port, controller_port = free_ports(2)
        settings = folder / "server.properties"
        settings.write_text(properties(folder / "kafka", port, controller_port) + more)
        format_node(folder, settings, new_cluster_id(), HEAP)
        with started("kafka", server_line(folder, settings, HEAP), folder) as broker:
            broker.wait_for(UP, START_S_MAX)
            yield OneBroker(folder, f"127.0.0.1:{port}", broker.process.pid)


@contextmanager
def running() -> Iterator[Driven]:
    with one_broker() as broker:
        yield Driven("kafka", {"broker": broker.pid}, java_driver(broker.folder), "kafka", broker.address, SHAPES)


def properties(data: Path, port: int, controller_port: int) -> str:
    """The documented configuration with our paths. A single node can have only one replica."""
    return node_properties(data, 1, f"1@127.0.0.1:{controller_port}", port, controller_port, copies=1, in_sync=1)
