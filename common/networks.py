"""Checks of a peer's address against a list of networks."""

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=1024)
def _parsed(networks: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, networks))


def is_within(peer: str, networks: tuple[str, ...]) -> bool:
    """Whether a connection's peer, `address:port`, is in one of the networks. An empty list contains every peer.

    An IPv4 address that came through an IPv6 socket counts as IPv4. A peer without an address, such as that of a socket
    file, is in no network.
    """
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in _parsed(networks))
