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
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


def _format(folder: Path, settings: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # As --cluster-id=…, because an id may begin with a dash.
    line = [*_java("kafka.tools.StorageTool", folder), "format", f"--cluster-id={cluster}", "-c", str(settings)]
    run_tool(line, folder)


def _java(main_class: str, folder: Path) -> list[str]:
    logging = folder / "log4j2.properties"
    logging.write_text(
        "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d %p %c %m%n\nrootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\n"
    )
    return java_server(
        main_class, broker_classpath("kafka"), folder, HEAP, *PAUSES, f"-Dlog4j2.configurationFile={logging}"
    )
