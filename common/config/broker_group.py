"""Broker groups: their addresses."""

from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition

BROKERS_MAX = 7


@dataclass(frozen=True)
class BrokerGroupDefinition(Definition):
    """A broker group, which holds its share of all queues. The names of all groups decide which: see
    common/placement.py.

    Attributes:
        name: takes part in the placement, so it stays when the broker moves.
        address: HOST:PORT of its broker's link; of several brokers, separated by commas.
    """

    kind: ClassVar[str] = "broker_group"

    address: str

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {"address": checks.addresses("address", BROKERS_MAX)}

    def to_value(self) -> dict[str, Any]:
        return {**self.extra, "address": self.address}

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
