"""Strangers: connections whose credential has not verified, or was refused last. They get a part of a server's places.

A stranger costs its address one refused call, or none, so strangers must not take the places of clients. A full part
closes a stranger in favour of a new one: the oldest of the address that has most of them, so a crowd closes its own. A
client needs a place only until its first call. What a crowd of more addresses than places shortens is the time for that
call, and nothing else.
"""

from collections import OrderedDict
from ipaddress import IPv6Address
from typing import Any

SHARE = 4  # strangers take this part of all connections, and those of one address this part of the strangers
LEAST = 16  # but as many as this, where the server has room for them


class BoundedStrangers:
    """The strangers of one server.

    The bound per address counts strangers only: any number of clients with verified credentials may share an address, as
    behind NAT.
    """

    def __init__(self, count_max: int, per_address_max: int) -> None:
        self.count_max, self.per_address_max = count_max, per_address_max
        self._addresses: dict[Any, str] = {}  # connection -> its address
        self._by_address: dict[str, OrderedDict[Any, None]] = {}  # the oldest connection first
        self._by_count = [OrderedDict[str, None]()]  # addresses with so many connections; only [0] stays when empty

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, connection: Any) -> bool:
        return connection in self._addresses

    def add(self, connection: Any, address: str) -> Any:
        """Add the newest stranger; returns the one that has to go for it, or None."""
        if connection in self._addresses:
            return None
        same = self._by_address.setdefault(address, OrderedDict())
        leaves = None
        if len(same) >= self.per_address_max:
            leaves = next(iter(same))
        elif len(self) >= self.count_max:
            leaves = self.first_to_go()
        self._addresses[connection] = address
        same[connection] = None
        self._count(address, len(same) - 1, len(same))
        return leaves

    def remove(self, connection: Any) -> None:
        """The connection is closed, or its credential has verified. Does nothing with one that is no stranger."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            same = self._by_address[address]
            del same[connection]
            self._count(address, len(same) + 1, len(same))
            if not same:
                del self._by_address[address]

    def first_to_go(self) -> Any:
        """The oldest stranger of the address that has most, of several the one that has had as many for longest; or None."""
        most = self._by_count[-1]
        return next(iter(self._by_address[next(iter(most))])) if most else None

    def _count(self, address: str, before: int, now: int) -> None:
        if before:
            del self._by_count[before][address]
        if now:
            if now == len(self._by_count):
                self._by_count.append(OrderedDict())
            self._by_count[now][address] = None
        while len(self._by_count) > 1 and not self._by_count[-1]:
            self._by_count.pop()


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
