"""Kafka: one KRaft node as broker and controller, with the documented configuration.

acks=1: the answer comes from the page cache.
"""

import base64
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.build import broker_classpath, run_tool
from bench.peers.driver import Driven, java_driver
from bench.peers.java import java_server
from bench.peers.processes import free_ports, started
from bench.peers.workloads import BATCHED, BATCHED_256, CONSUMED, OPEN, SINGLE, SINGLE_256, Shape

HEAP = "1g"  # default of Kafka's scripts
PAUSES = ("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")
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


@contextmanager
def running() -> Iterator[Driven]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-kafka-") as name:
        folder = Path(name)
        port, controller_port = free_ports(2)
        settings = folder / "server.properties"
        settings.write_text(properties(folder / "data", port, controller_port))
        _format(folder, settings)
        line = [*_java("kafka.Kafka", folder), str(settings)]
        with started("kafka", line, folder) as broker:
            broker.wait_for("Kafka Server started")
            pids = {"broker": broker.process.pid}
            yield Driven("kafka", pids, java_driver(folder), "kafka", f"127.0.0.1:{port}", SHAPES)


def properties(data: Path, port: int, controller_port: int) -> str:
    """The documented configuration with our paths. A single node can have only one replica."""
    return node_properties(data, 1, f"1@127.0.0.1:{controller_port}", port, controller_port, copies=1, in_sync=1)


def node_properties(
    data: Path, number: int, voters: str, port: int, controller_port: int, *, copies: int, in_sync: int
) -> str:
    """The configuration of one node, which is broker and controller.

    Args:
        voters: all controllers, as NUMBER@HOST:PORT with commas.
        copies, in_sync: of the internal topics, and how many of them a write needs.
    """
    return f"""\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
offsets.topic.replication.factor={copies}
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
"""


def _format(folder: Path, settings: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # As --cluster-id=…, because an id may begin with a dash.
    line = [*_java("kafka.tools.StorageTool", folder), "format", f"--cluster-id={cluster}", "-c", str(settings)]
    run_tool(line, folder)


def logging_settings(folder: Path) -> Path:
    """Write a configuration that logs to standard output."""
    logging = folder / "log4j2.properties"
    logging.write_text(
        "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d %p %c %m%n\nrootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\n"
    )
    return logging


def _java(main_class: str, folder: Path) -> list[str]:
    logging = logging_settings(folder)
    return java_server(
        main_class, broker_classpath("kafka"), folder, HEAP, *PAUSES, f"-Dlog4j2.configurationFile={logging}"
    )
