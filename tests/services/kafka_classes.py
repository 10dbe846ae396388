"""An archive of Kafka's loaded classes, which halves the start of a broker; made once per version, kept in the cache.

A start costs 10 s of CPU with the options of Kafka's scripts, 6 s with the quick compiler, and 3 s with the archive.
"""

import hashlib
import signal
import subprocess
import tempfile
from pathlib import Path

from bench.peers.build import broker_classpath, cache
from bench.peers.kafka_node import UP, format_line, new_cluster_id, node_properties, server_line
from bench.peers.processes import free_ports
from bench.peers.replicated.nodes import PeerNode

HEAP = "256m"
QUICK = ("-XX:-UseG1GC", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
STEP_TIMEOUT_S = 180


def class_archive() -> Path:
    """Return its path; the first call on a machine fetches Kafka, runs a broker and stops it.

    Raises:
        InstanceError: Java or Maven is not installed, or the broker did not start.
    """
    virtual_machine = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    names = f"{broker_classpath('kafka')}{QUICK}".encode() + virtual_machine
    path = cache() / f"kafka-classes-{hashlib.sha256(names).hexdigest()[:12]}.jsa"
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix="kafka-classes-", dir=cache()) as folder:
            _make(Path(folder)).rename(path)
    return path


def _make(folder: Path) -> Path:
    archive, settings = folder / "classes.jsa", folder / "server.properties"
    port, controller = free_ports(2)
    text = node_properties(folder / "data", 1, f"1@127.0.0.1:{controller}", port, controller, copies=1, in_sync=1)
    settings.write_text(text)
    line = format_line(folder, settings, new_cluster_id(), HEAP, QUICK)
    subprocess.run(line, check=True, capture_output=True, cwd=folder, timeout=STEP_TIMEOUT_S)
    machine = (*QUICK, f"-XX:ArchiveClassesAtExit={archive}")
    node = PeerNode("kafka", server_line(folder, settings, HEAP, machine), folder, UP)
    try:
        node.launch()
        node.wait_up(STEP_TIMEOUT_S)
        node.strike(signal.SIGTERM)  # the archive is written by an orderly exit
        node.wait_end(STEP_TIMEOUT_S)
    finally:
        node.end()
    return archive
