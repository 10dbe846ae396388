"""Broker groups: their addresses."""

from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition


@dataclass(frozen=True)
class BrokerGroupDefinition(Definition):
    """A broker group, which holds its share of all queues. The names of all groups decide which: see
    common/placement.py.

    Attributes:
        name: takes part in the placement, so it stays when the broker moves.
        address: HOST:PORT of its broker's link.
    """

    kind: ClassVar[str] = "broker_group"

    address: str

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {"address": checks.address("address")}

    def to_value(self) -> dict[str, Any]:
        return {**self.extra, "address": self.address}

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)
