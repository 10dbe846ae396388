"""NATS JetStream: three servers, streams of three replicas in files; a write is answered when a majority has it.

The servers' defaults, and the client library's. Every thread of the switch-over has a connection of its own, spread
over the servers by the library: one connection would find out by its pings, after minutes, that its server is stopped.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.peers.build import go_program
from bench.peers.driver import Driven, go_driver
from bench.peers.nats import SERVER
from bench.peers.processes import free_ports
from bench.peers.replicated.nodes import Cluster, PeerNode, serving
from bench.peers.replicated.workloads import SHAPES, STEADY, STEADY_SHAPE

SERVERS = 3
UP = "Server is ready"
OWN_CONNECTIONS = {**SHAPES, STEADY.name: replace(STEADY_SHAPE, clients=STEADY_SHAPE.threads)}


@contextmanager
def running() -> Iterator[Cluster]:
    server = go_program("nats-server", SERVER)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-nats-") as name:
        folder = Path(name)
        ports = free_ports(2 * SERVERS)
        nodes = {}
        for number in range(SERVERS):
            settings = folder / f"n{number}.conf"
            settings.write_text(server_settings(folder / f"data-{number}", number, ports))
            nodes[f"n{number}"] = PeerNode(f"nats-{number}", [str(server), "-c", str(settings)], folder, UP)
        with serving([*nodes.values()]):
            servers = ",".join(f"nats://127.0.0.1:{port}" for port in ports[:SERVERS])
            pids = {node.name: node.pid for node in nodes.values()}
            driven = Driven("nats", pids, go_driver(), "nats", servers, OWN_CONNECTIONS, copies=SERVERS)
            yield Cluster(driven, nodes, SERVERS)


def server_settings(store: Path, number: int, ports: Sequence[int]) -> str:
    """
    Args:
        ports: of all servers for clients, then for each other.
    """
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[SERVERS:])
    return f"""\
server_name: n{number}
listen: "127.0.0.1:{ports[number]}"
jetstream {{ store_dir: "{store}" }}
cluster {{ name: bench, listen: "127.0.0.1:{ports[SERVERS + number]}", routes: [{routes}] }}
"""
