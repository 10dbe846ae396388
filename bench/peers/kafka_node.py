"""KRaft nodes of Kafka: configuration, format and command line. Benchmarks and tests start their brokers by it."""

import base64
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.peers.build import broker_classpath, run_tool
from bench.peers.java import java_server

UP = "Kafka Server started"
PAUSES = ("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")
"""Options of the virtual machine in Kafka's own scripts."""


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


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_line(folder: Path, settings: Path, cluster: str, heap: str, machine: Sequence[str] = PAUSES) -> list[str]:
    """The command that writes the metadata of an empty node; more options of the format tool may follow."""
    # As --cluster-id=…, because an id may begin with a dash.
    tool = java_line("kafka.tools.StorageTool", folder, heap, machine)
    return [*tool, "format", f"--cluster-id={cluster}", "-c", str(settings)]


def format_node(folder: Path, settings: Path, cluster: str, heap: str) -> None:
    """Run `format_line`.

    Raises:
        InstanceError: it failed, or Java or Maven is not installed.
    """
    run_tool(format_line(folder, settings, cluster, heap), folder)


def server_line(folder: Path, settings: Path, heap: str, machine: Sequence[str] = PAUSES) -> list[str]:
    """The command of a formatted node; it prints `UP` when it serves."""
    return [*java_line("kafka.Kafka", folder, heap, machine), str(settings)]


def java_line(main_class: str, folder: Path, heap: str, machine: Sequence[str] = PAUSES) -> list[str]:
    """The command of a Java program of Kafka that logs to standard output.

    The first call fetches Kafka by Maven.

    Args:
        machine: options of the virtual machine.
    """
    logging = folder / "log4j2.properties"
    logging.write_text(
        "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d %p %c %m%n\nrootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\n"
    )
    options = (*machine, f"-Dlog4j2.configurationFile={logging}")
    return java_server(main_class, broker_classpath("kafka"), folder, heap, *options)
