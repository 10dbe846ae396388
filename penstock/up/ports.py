"""Ports of the machine's processes: each has one for calls and one for the operator."""

import random
import socket
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.up.errors import PortTaken, WrongPort

PROCESSES = ("producer_proxy", "consumer_proxy", "engine")
NAMES = PROCESSES + tuple(
    f"{name}_ops" for name in PROCESSES
)  # with one broker group; the ports of further groups follow
CONTROLLER, KAFKA_BRIDGE, CONSOLE = "controller", "kafka_bridge", "console"
DEFAULT_BASE = 9700
# Below the range from which the kernel takes the local ports of outgoing connections: one of those could take a port
# between this check and the child's bind.
FREE_RANGE = range(20_000, 32_000)
TRIES = 2_000

Ports = dict[str, int]
LOOPBACK = "127.0.0.1"


class Hosts(NamedTuple):
    """The address on which each kind of port listens. Only applications need one that others can reach."""

    applications: str = LOOPBACK
    engines: str = LOOPBACK
    ops: str = LOOPBACK
    console: str = LOOPBACK

    def of(self, name: str) -> str:
        """The address of a port by its name."""
        if name == CONSOLE:
            return self.console
        if name.endswith("_ops"):
            return self.ops
        return self.applications if name in ("producer_proxy", "consumer_proxy") else self.engines


def engine_name(number: int) -> str:
    """The name of the engine of broker group `number`, from 1 on: of its process, its ports and its directory."""
    return "engine" if number == 1 else f"engine-{number}"


def group_name(number: int) -> str:
    """The name of broker group `number`, from 1 on.

    The placement depends on it: it must not change while there are messages.
    """
    return f"group-{number}"


def broker_name(number: int, replica: int) -> str:
    """The name of a broker of group `number`, from 1 on; `replica` from 1 on: as the engine of a group without others."""
    return engine_name(number) if replica == 1 else f"{engine_name(number)}-r{replica}"


def names_of(groups: int, replicas: int = 1, has_kafka: bool = False, has_console: bool = False) -> tuple[str, ...]:
    """Names of all ports, in the order in which they follow a base."""
    more = [engine_name(number) for number in range(2, groups + 1)]
    more += [broker_name(number, each) for each in range(2, replicas + 1) for number in range(1, groups + 1)]
    more += [CONTROLLER] if replicas > 1 else []
    more += [KAFKA_BRIDGE] if has_kafka else []
    names = (*NAMES, *(name for process in more for name in (process, f"{process}_ops")))
    return (*names, CONSOLE) if has_console else names  # its pages and those of its operator have one port


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # sockets of the last run in TIME_WAIT do not count
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose(asked: str | None, hosts: Hosts, last: Mapping[str, int], names: tuple[str, ...] = NAMES) -> Ports:
    """Return a port for each of `names`.

    Args:
        asked: "auto" (the last run's when free, else any free ones), a number (that and the following ones), or None
            (like auto, but prefers the default base to arbitrary ones).
        last: the ports of the last run on this data directory. They are kept, and those that it did not have are added.
    Raises:
        PortTaken: a port given by number is in use.
        WrongPort: `asked` is something else.
    """
    if asked not in (None, "auto"):
        return numbered(parse_base(asked, names), hosts, names)
    kept = {name: last[name] for name in names if name in last}
    if set(NAMES) <= set(kept) and all(is_free(hosts.of(name), port) for name, port in kept.items()):
        added = tuple(name for name in names if name not in kept)  # as of a bridge that the last run did not have
        return kept | any_free(hosts, added, but=kept.values())
    if asked is None:
        try:
            return numbered(DEFAULT_BASE, hosts, names)
        except PortTaken:
            pass
    return any_free(hosts, names)


def parse_base(text: str | None, names: tuple[str, ...]) -> int:
    if not (text or "").isdigit() or not 1 <= int(text or 0) <= 65535 - len(names):
        raise WrongPort(f"--ports {text}: not a port: use auto or a number from 1 to {65535 - len(names):,}")
    return int(text or 0)


def numbered(base: int, hosts: Hosts, names: tuple[str, ...]) -> Ports:
    ports = {name: base + index for index, name in enumerate(names)}
    for name, port in ports.items():
        if not is_free(hosts.of(name), port):
            raise PortTaken(
                f"port {port} ({name}) on {hosts.of(name)}: in use: use another --ports BASE, or --ports auto"
            )
    return ports


def any_free(hosts: Hosts, names: tuple[str, ...] = NAMES, but: Collection[int] = ()) -> Ports:
    """A free port for each of `names`, none of them in `but`."""
    found: list[int] = []
    for port in random.SystemRandom().sample(FREE_RANGE, TRIES):
        if len(found) == len(names):
            return dict(zip(names, found, strict=True))
        if port not in but and is_free(hosts.of(names[len(found)]), port):
            found.append(port)
    raise PortTaken(
        f"{hosts.of(names[len(found)])}: fewer than {len(names)} free ports from {FREE_RANGE.start} to {FREE_RANGE.stop}: use --ports BASE"
    )
