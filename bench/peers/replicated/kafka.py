"""Kafka: three KRaft nodes, each broker and controller; three copies, acks=all, min.insync.replicas=2.

Its documentation's configuration for this durability, and the client library's defaults. A write is answered when all
nodes of the in-sync set have it in their page caches.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.peers.driver import Driven, java_driver
from bench.peers.kafka_node import UP, format_node, new_cluster_id, node_properties, server_line
from bench.peers.processes import free_ports
from bench.peers.replicated.nodes import Cluster, PeerNode, serving
from bench.peers.replicated.workloads import SHAPES

NODES = 3
HEAP = "512m"
QUICK, PATIENCE_MS = "kafka-3s", 3_000
"""A client that waits for 3 s instead of 30 for the answer to a request: a stopped leader closes no connection."""


@contextmanager
def running() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-kafka-") as name:
        folder = Path(name)
        numbers = range(1, NODES + 1)
        ports = free_ports(2 * NODES)
        cluster = new_cluster_id()
        nodes = {str(each): _node(folder / str(each), each, ports, cluster) for each in numbers}
        with serving([*nodes.values()]):
            servers = ",".join(f"127.0.0.1:{port}" for port in ports[:NODES])
            pids = {f"broker {each}": node.pid for each, node in nodes.items()}
            driven = Driven("kafka", pids, java_driver(folder), "kafka", servers, SHAPES, copies=NODES)
            quick = replace(driven, name=QUICK, patience_ms=PATIENCE_MS)
            yield Cluster(driven, nodes, NODES, (quick,))


def _node(folder: Path, number: int, ports: Sequence[int], cluster: str) -> PeerNode:
    folder.mkdir()
    settings = folder / "server.properties"
    settings.write_text(properties(folder / "data", number, ports))
    format_node(folder, settings, cluster, HEAP)
    return PeerNode(f"kafka-{number}", server_line(folder, settings, HEAP), folder, UP)


def properties(data: Path, number: int, ports: Sequence[int]) -> str:
    """
    Args:
        ports: of all brokers, then of all controllers.
    """
    voters = ",".join(f"{each}@127.0.0.1:{ports[NODES + each - 1]}" for each in range(1, NODES + 1))
    port, controller_port = ports[number - 1], ports[NODES + number - 1]
    common = node_properties(data, number, voters, port, controller_port, copies=NODES, in_sync=2)
    return f"{common}default.replication.factor={NODES}\nmin.insync.replicas=2\n"
