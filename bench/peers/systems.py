"""All systems, by their names for `--only`. Two of them have two forms. Each supports some of the workloads."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from bench.peers import kafka, nats, penstock, rocketmq
from bench.peers.figures import Figures
from bench.peers.workloads import PeerWorkload, Terms


class RunningSystem(Protocol):
    """A running system, which a driver can load."""

    def answers(self, workload: PeerWorkload) -> bool: ...

    def run(self, workload: PeerWorkload, terms: Terms) -> Figures: ...


Start = Callable[[], AbstractContextManager[RunningSystem]]

SYSTEMS: dict[str, dict[str, Start]] = {
    "penstock": {penstock.NATIVE: penstock.native, penstock.JAVA: penstock.java},
    "kafka": {"kafka": kafka.running},
    "rocketmq": {"rocketmq": rocketmq.running, "rocketmq-tuned": partial(rocketmq.running, tuned=True)},
    "rocketmq-proxy": {"rocketmq-proxy": rocketmq.proxied},
    "nats": {"nats": nats.running},
}
OURS = (penstock.NATIVE, penstock.JAVA)
