"""Broker groups: their addresses."""

from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition

BROKERS_MAX = 7
ALL, KEYED = WRITES = ("all", "keyed")


@dataclass(frozen=True)
class BrokerGroupDefinition(Definition):
    """A broker group, which holds its share of all queues. The names of all groups decide which: see
    common/placement.py.

    Attributes:
        name: takes part in the placement, so it stays when the broker moves.
        address: HOST:PORT of its broker's link; of several brokers, separated by commas.
        writes: ALL, or KEYED: messages without a key go to other groups where they can, so that this one has little to do.
    """

    kind: ClassVar[str] = "broker_group"

    address: str
    writes: str = ALL

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {
            "address": checks.addresses("address", BROKERS_MAX),
            "writes": checks.choice("writes", ALL, WRITES),
        }

    def to_value(self) -> dict[str, Any]:
        value = {**self.extra, "address": self.address}
        return value if self.writes == ALL else {**value, "writes": self.writes}

    @property
    def is_spared(self) -> bool:
        """Whether messages that can go to another group do."""
        return self.writes == KEYED

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Of its brokers."""
        return tuple((host.strip("[]"), int(port)) for host, _, port in map(_parted, self.address.split(",")))

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Of its first broker."""
        return self.addresses[0]

    @property
    def place(self) -> tuple[str, int] | tuple[tuple[str, int], ...]:
        """Its only broker's address, or those of several."""
        found = self.addresses
        return found[0] if len(found) == 1 else found


def _parted(address: str) -> tuple[str, str, str]:
    return address.rpartition(":")
