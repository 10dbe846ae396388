"""Cuts of links between the hosts of a broker group, and what docs/replicas.md promises for each."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.services.network import Pair, both, from_all

SWITCH, LEAVES, NOTHING = "another master", "the slave leaves the set", "nothing"


class Roles(NamedTuple):
    """Names of hosts at one moment. `slave`: in sync; `hosts`: all."""

    master: str
    slave: str
    controllers: Sequence[str]
    zookeeper: str
    hosts: Sequence[str]

    def between(self, host: str, others: Sequence[str]) -> list[Pair]:
        return both(*((host, other) for other in others))


class CutCase(NamedTuple):
    name: str
    pairs: Callable[[Roles], list[Pair]]
    effect: str


CASES = [
    CutCase("master from everybody", lambda r: from_all(r.master, r.hosts), SWITCH),
    CutCase("nothing from the master arrives", lambda r: [(r.master, o) for o in r.hosts if o != r.master], SWITCH),
    CutCase("nothing arrives at the master", lambda r: [(o, r.master) for o in r.hosts if o != r.master], SWITCH),
    CutCase("master from slave and controllers", lambda r: r.between(r.master, [r.slave, *r.controllers]), SWITCH),
    CutCase("slave from everybody", lambda r: from_all(r.slave, r.hosts), LEAVES),
    CutCase("master from slave", lambda r: both((r.master, r.slave)), LEAVES),
    CutCase("nothing from master to slave", lambda r: [(r.master, r.slave)], LEAVES),
    CutCase("nothing from slave to master", lambda r: [(r.slave, r.master)], LEAVES),
    CutCase("master from ZooKeeper", lambda r: both((r.master, r.zookeeper)), NOTHING),
    CutCase("slave from ZooKeeper", lambda r: both((r.slave, r.zookeeper)), NOTHING),
    CutCase("master from controllers", lambda r: r.between(r.master, r.controllers), NOTHING),
    CutCase("slave from controllers", lambda r: r.between(r.slave, r.controllers), NOTHING),
    CutCase("ZooKeeper from everybody", lambda r: from_all(r.zookeeper, r.hosts), NOTHING),
    CutCase("controllers from ZooKeeper", lambda r: r.between(r.zookeeper, r.controllers), NOTHING),
]
