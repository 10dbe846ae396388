"""Which six ports the machine's processes use: a port for calls and one for the operator each."""

import random
import socket
from collections.abc import Mapping

from penstock.up.errors import PortTaken, UpError

PROCESSES = ("producer_proxy", "consumer_proxy", "engine")
NAMES = PROCESSES + tuple(f"{name}_ops" for name in PROCESSES)
DEFAULT_BASE = 9700
# Below the range from which the kernel takes the local ports of outgoing connections: one of those could take a port
# between our look and the child's bind.
FREE_RANGE = range(20_000, 32_000)
TRIES = 2_000

Ports = dict[str, int]


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT of the last run is no obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose(asked: str | None, host: str, last: Mapping[str, int]) -> Ports:
    """Return a port for each of NAMES.

    Args:
        asked: "auto" (the last run's when free, else any free ones), a number (that and the five behind it), or None
            (like auto, but prefers the default base to arbitrary ones).
        last: what the last run on this data directory used.
    Raises:
        PortTaken: a port asked for by number is in use.
    """
    if asked not in (None, "auto"):
        return numbered(parse_base(asked), host)
    if set(last) == set(NAMES) and all(is_free(host, port) for port in last.values()):
        return dict(last)
    if asked is None:
        try:
            return numbered(DEFAULT_BASE, host)
        except PortTaken:
            pass
    return any_free(host)


def parse_base(text: str | None) -> int:
    if not (text or "").isdigit() or not 1 <= int(text or 0) <= 65535 - len(NAMES):
        raise UpError(f"--ports takes auto or a number from 1 to {65535 - len(NAMES)}, not {text}")
    return int(text or 0)


def numbered(base: int, host: str) -> Ports:
    ports = {name: base + index for index, name in enumerate(NAMES)}
    for name, port in ports.items():
        if not is_free(host, port):
            raise PortTaken(f"port {port} ({name}) on {host} is in use; give another --ports BASE or --ports auto")
    return ports


def any_free(host: str) -> Ports:
    found: list[int] = []
    for port in random.SystemRandom().sample(FREE_RANGE, TRIES):
        if is_free(host, port):
            found.append(port)
        if len(found) == len(NAMES):
            return dict(zip(NAMES, found, strict=True))
    raise PortTaken(f"no {len(NAMES)} free ports on {host} between {FREE_RANGE.start} and {FREE_RANGE.stop}")
