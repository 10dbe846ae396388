"""Which ports the machine's processes use: a port for calls and one for the operator each."""

import random
import socket
from collections.abc import Mapping

from penstock.up.errors import PortTaken, UpError

PROCESSES = ("producer_proxy", "consumer_proxy", "engine")
NAMES = PROCESSES + tuple(
    f"{name}_ops" for name in PROCESSES
)  # with one broker group; those of further ones come behind
DEFAULT_BASE = 9700
# Below the range from which the kernel takes the local ports of outgoing connections: one of those could take a port
# between our look and the child's bind.
FREE_RANGE = range(20_000, 32_000)
TRIES = 2_000

Ports = dict[str, int]


def engine_name(number: int) -> str:
    """Of the engine of broker group `number`, from 1 on: its process, its ports and its directory are called so."""
    return "engine" if number == 1 else f"engine-{number}"


def names_of(groups: int) -> tuple[str, ...]:
    """Who needs a port, in the order in which a base numbers them."""
    more = [engine_name(number) for number in range(2, groups + 1)]
    return (*NAMES, *(name for engine in more for name in (engine, f"{engine}_ops")))


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT of the last run is no obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose(asked: str | None, host: str, last: Mapping[str, int], names: tuple[str, ...] = NAMES) -> Ports:
    """Return a port for each of `names`.

    Args:
        asked: "auto" (the last run's when free, else any free ones), a number (that and those behind it), or None
            (like auto, but prefers the default base to arbitrary ones).
        last: what the last run on this data directory used.
    Raises:
        PortTaken: a port asked for by number is in use.
    """
    if asked not in (None, "auto"):
        return numbered(parse_base(asked, names), host, names)
    if set(last) == set(names) and all(is_free(host, port) for port in last.values()):
        return dict(last)
    if asked is None:
        try:
            return numbered(DEFAULT_BASE, host, names)
        except PortTaken:
            pass
    return any_free(host, names)


def parse_base(text: str | None, names: tuple[str, ...]) -> int:
    if not (text or "").isdigit() or not 1 <= int(text or 0) <= 65535 - len(names):
        raise UpError(f"--ports takes auto or a number from 1 to {65535 - len(names)}, not {text}")
    return int(text or 0)


def numbered(base: int, host: str, names: tuple[str, ...]) -> Ports:
    ports = {name: base + index for index, name in enumerate(names)}
    for name, port in ports.items():
        if not is_free(host, port):
            raise PortTaken(f"port {port} ({name}) on {host} is in use; give another --ports BASE or --ports auto")
    return ports


def any_free(host: str, names: tuple[str, ...] = NAMES) -> Ports:
    found: list[int] = []
    for port in random.SystemRandom().sample(FREE_RANGE, TRIES):
        if is_free(host, port):
            found.append(port)
        if len(found) == len(names):
            return dict(zip(names, found, strict=True))
    raise PortTaken(f"no {len(names)} free ports on {host} between {FREE_RANGE.start} and {FREE_RANGE.stop}")
