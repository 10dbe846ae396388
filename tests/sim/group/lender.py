"""Slaves of a simulated group that lend bytes for their master's cold reads, some of them damaged on the way."""

from typing import TYPE_CHECKING

from engine.broker.host import lending_slaves
from engine.errors import LogError
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.broker import Broker

FAR_BYTES = 32 << 10
FAILS, DAMAGES = 0.1, 0.05


class SimulatedLender:
    """In the place of `engine.broker.piece_lender.PieceLender`, without a wait."""

    far_bytes = FAR_BYTES

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._chance = broker.world.random_of(f"lender-{broker.name}-{broker.number}-{broker.opened}")
        self._is_stopped = False

    @property
    def is_ready(self) -> bool:
        core = self._broker.core
        return core is not None and bool(lending_slaves(core))

    def lend(self, base: int, address: int, size: int) -> bytes:
        core, chance = self._broker.core, self._chance.random()
        for slave in [] if core is None or self._is_stopped else lending_slaves(core):
            found = self._piece(slave.name, slave.epoch, base, address, size)
            if slave.limit < base + address + size or not found or chance < FAILS:
                continue
            own = bytes(self._broker.env.files[core.group.raw.path_of(base)].seen[address : address + size])
            if found != own:
                raise Broken(f"{slave.name} lends other bytes than {self._broker.name} has at {base + address}")
            self._broker.cluster.lent += len(found)
            return bytes(len(found)) if chance > 1 - DAMAGES else found
        return b""

    def stop(self) -> None:
        self._is_stopped = True

    def _piece(self, name: str, epoch: int, base: int, address: int, size: int) -> bytes:
        slave = self._broker.cluster.brokers[name]
        group = None if slave.core is None else slave.core.group
        if group is None or not slave.is_up or slave.is_stopped or group.epoch != epoch:
            return b""
        try:
            return bytes(slave.env.files[group.raw.path_of(base)].seen[address : address + size])
        except LogError:
            return b""
