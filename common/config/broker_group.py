"""What the configuration says of a broker group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from common.config.checks import Checks


@dataclass(frozen=True)
class BrokerGroupDefinition:
    """A broker group that holds its share of all queues. Which, follows from the names of all groups: see common/placement.py.

    Attributes:
        name: part of the placement, so it stays when the broker moves.
        address: HOST:PORT of its broker's link.
    """

    kind: ClassVar[str] = "broker_group"

    name: str
    address: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        checks = Checks(cls.kind, name, value)
        made = cls(name=checks.own_name(), address=checks.address("address"), extra=checks.rest())
        checks.raise_faults()
        return made

    def to_value(self) -> dict[str, Any]:
        return {**self.extra, "address": self.address}

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)
