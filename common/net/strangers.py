"""Strangers: connections whose credential has not verified, or was refused last. They get a part of a server's places.

A stranger costs its address one refused call, or none, so strangers must not take the places of clients. A full part
closes its oldest stranger in favour of a new one: a client needs a place only until its first call. So a crowd shortens
the time that a client has for its first call, and nothing else.
"""

from collections import OrderedDict
from ipaddress import IPv6Address
from typing import Any

SHARE = 4  # strangers take this part of all connections, and those of one address this part of the strangers
LEAST = 16  # but as many as this, where the server has room for them


class BoundedStrangers:
    """The strangers of one server, oldest first.

    The bound per address counts strangers only: any number of clients with verified credentials may share an address, as
    behind NAT.
    """

    def __init__(self, count_max: int, per_address_max: int) -> None:
        self.count_max, self.per_address_max = count_max, per_address_max
        self._addresses: OrderedDict[Any, str] = OrderedDict()  # connection -> its address
        self._by_address: dict[str, OrderedDict[Any, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, connection: Any) -> bool:
        return connection in self._addresses

    def add(self, connection: Any, address: str) -> Any:
        """Add the newest stranger; returns the one that has to go for it, or None."""
        same = self._by_address.setdefault(address, OrderedDict())
        oldest = None
        if len(same) >= self.per_address_max:
            oldest = next(iter(same))
        elif len(self) >= self.count_max:
            oldest = self.oldest()
        self._addresses[connection] = address
        same[connection] = None
        return oldest

    def remove(self, connection: Any) -> None:
        """The connection is closed, or its credential has verified. Does nothing with one that is no stranger."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            same = self._by_address[address]
            del same[connection]
            if not same:
                del self._by_address[address]

    def oldest(self) -> Any:
        """The stranger that came first, or None."""
        return next(iter(self._addresses), None)


def strangers_of(connections_max: int) -> BoundedStrangers:
    """The strangers of a server with so many connections."""
    count_max = min(connections_max, max(LEAST, connections_max // SHARE))
    return BoundedStrangers(count_max, min(count_max, max(LEAST, count_max // SHARE)))


def network_of(host: str) -> str:
    """The network that counts as one address: an IPv4 address, also in the form ::ffff:A.B.C.D, or the /64 of an IPv6 one."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
