"""All systems with replicas, by their names for `--only`, and the workloads of each start."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from bench.peers.figures import Figures
from bench.peers.replicated import kafka, nats, penstock, rocketmq
from bench.peers.replicated.nodes import ReplicatedSystem
from bench.peers.workloads import PeerWorkload, Terms

SYSTEMS: dict[str, Callable[[], AbstractContextManager[ReplicatedSystem]]] = {
    "penstock": penstock.running,
    "kafka": kafka.running,
    "rocketmq": rocketmq.running,
    "nats": nats.running,
}


def calls(system: ReplicatedSystem, workload: PeerWorkload, terms: Terms) -> Iterator[Figures]:
    """Run a workload; Penstock has two forms, by the native generator and by the Java driver.

    Raises:
        RunError: a driver broke off.
    """
    if isinstance(system, penstock.Replicated):
        yield system.run(workload, terms)
    yield system.driven.run(workload, terms)
