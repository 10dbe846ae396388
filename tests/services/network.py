"""Hosts on one machine: network namespaces on a bridge, whose links a test cuts and slows.

    with Network("a", "b") as network:
        process = subprocess.Popen([*network.inside("a"), "program"])  # listens on network.address("a")
        with network.cut(("a", "b")):  # nothing that a sends reaches b

The test itself is a host as well (TEST), so that it reaches all of them. Everything has the process's id in its name:
what dead runs have left is removed at the start, and this run's at the end.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from tests.services import require

TEST = "test"
INTERFACE = "eth0"
Pair = tuple[str, str]
"""A direction: (from, to)."""
_NAMESPACES = Path("/run/netns")
_OURS = re.compile(r"psnet(\d+)\.")
_NUMBERS = itertools.count(1)


class Network:
    """
    Args:
        hosts: names, short ones.
    """

    def __init__(self, *hosts: str) -> None:
        require(os.geteuid() == 0, "network namespaces need root")
        for program in ("ip", "nft", "nsenter", "tc"):
            require(shutil.which(program), f"network namespaces need {program}: apt install iproute2 nftables")
        self.hosts = hosts
        self._prefix = f"psnet{os.getpid()}."
        self._switch = f"{self._prefix}switch"
        self._subnet = _free_subnet()
        self._numbers = {name: number for number, name in enumerate((TEST, *hosts), 1)}

    def address(self, host: str) -> str:
        return f"{self._subnet}.{self._numbers[host]}"

    def inside(self, host: str) -> list[str]:
        """Return the front of a command line that runs the rest on that host, with its process id and mounts."""
        return ["nsenter", f"--net={_NAMESPACES / self._namespace(host)}", "--"]

    def start(self) -> "Network":
        """Make it. A kernel without namespaces skips the test at a desk."""
        _remove_dead_runs()
        try:
            _run("ip", "netns", "add", self._switch)
        except OSError as error:
            require(False, f"network namespaces: {error}")
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        try:
            for host in self._numbers:
                self._join(host)
        except OSError:
            self.remove()
            raise
        return self

    def remove(self) -> None:
        """End all processes on its hosts, and the hosts."""
        _remove(self._prefix)

    def _namespace(self, host: str) -> str:
        return f"{self._prefix}{host}"

    def _join(self, host: str) -> None:
        """A host with one interface on the bridge."""
        port, inside = f"port{self._numbers[host]}", () if host == TEST else ("-n", self._namespace(host))
        interface = self._interface(host)
        if host != TEST:
            _run("ip", "netns", "add", self._namespace(host))
            _run("ip", *inside, "link", "set", "lo", "up")
        peer = () if host == TEST else ("netns", self._namespace(host))
        _run("ip", "-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", interface, *(
            peer or ("netns", str(os.getpid()))
        ))  # fmt: skip
        _run("ip", *inside, "addr", "add", f"{self.address(host)}/24", "dev", interface)
        _run("ip", *inside, "link", "set", interface, "up")
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")

    def _interface(self, host: str) -> str:
        return f"psnet{os.getpid()}" if host == TEST else INTERFACE

    @contextmanager
    def cut(self, *pairs: Pair) -> Iterator["Cut"]:
        """Drop all packets of these directions, without a word to their senders."""
        made = Cut(self, pairs)
        made.begin()
        try:
            yield made
        finally:
            made.heal()

    @contextmanager
    def slow(self, host: str, kbit_s: int) -> Iterator["SlowLink"]:
        """Let a host send no faster than this; up to 0.5 s of it wait, more is dropped."""
        made = SlowLink(self, host, kbit_s)
        made.begin()
        try:
            yield made
        finally:
            made.heal()

    def __enter__(self) -> "Network":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Cut:
    """One cut; several may hold at the same time, also of the same direction."""

    def __init__(self, network: Network, pairs: Iterable[Pair]) -> None:
        self._network, self._pairs = network, list(pairs)
        self._table = f"cut{next(_NUMBERS)}"
        self._dropped = 0
        self._held = False

    def begin(self) -> None:
        for receiver, senders in self._senders().items():
            rules = "".join(f"ip saddr {self._network.address(each)} counter drop; " for each in senders)
            chain = f"chain in {{ type filter hook input priority 0; {rules}}}"
            self._nft(receiver, f"table inet {self._table} {{ {chain}; }}")
        self._held = True

    def heal(self) -> None:
        """Let packets through again; `dropped` stays."""
        if self._held:
            self._dropped, self._held = self.dropped, False
            for receiver in self._senders():
                self._nft(receiver, f"delete table inet {self._table}")

    @property
    def dropped(self) -> int:
        """Packets that it has dropped so far."""
        return sum(self.dropped_at(receiver) for receiver in self._senders()) if self._held else self._dropped

    def dropped_at(self, receiver: str) -> int:
        """Packets that were to reach this host."""
        told = _run(*self._network.inside(receiver), "nft", "-j", "list", "table", "inet", self._table)
        rules = [each["rule"]["expr"] for each in json.loads(told)["nftables"] if "rule" in each]
        return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)

    def _senders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for sender, receiver in self._pairs:
            found.setdefault(receiver, []).append(sender)
        return found

    def _nft(self, host: str, text: str) -> None:
        _run(*self._network.inside(host), "nft", text)


class SlowLink:
    """A host's outgoing packets at a limited rate."""

    def __init__(self, network: Network, host: str, kbit_s: int) -> None:
        self._inside, self._kbit_s = network.inside(host), kbit_s
        self._delayed = 0
        self._held = False

    def begin(self) -> None:
        rate = ("rate", f"{self._kbit_s}kbit", "burst", "20kb", "latency", "500ms")
        _run(*self._inside, "tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", *rate)
        self._held = True

    def heal(self) -> None:
        """Full speed again; `delayed` stays."""
        if self._held:
            self._delayed, self._held = self.delayed, False
            _run(*self._inside, "tc", "qdisc", "del", "dev", INTERFACE, "root")

    @property
    def delayed(self) -> int:
        """Times that a packet had to wait, and packets that were dropped."""
        if not self._held:
            return self._delayed
        told = json.loads(_run(*self._inside, "tc", "-s", "-j", "qdisc", "show", "dev", INTERFACE))
        return sum(each.get("overlimits", 0) + each.get("drops", 0) for each in told if each["kind"] == "tbf")


def both(*pairs: Pair) -> list[Pair]:
    """Both directions of each pair."""
    return [each for first, second in pairs for each in ((first, second), (second, first))]


def from_all(host: str, others: Iterable[str]) -> list[Pair]:
    """All directions between a host and the others."""
    return both(*((host, other) for other in others if other != host))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _free_subnet() -> str:
    """The first three numbers of an IPv4 subnet that no interface of this machine has."""
    used = _run("ip", "-o", "-4", "addr")
    for number in range(256):
        subnet = f"10.213.{(os.getpid() + number) % 256}"
        if f"inet {subnet}." not in used:
            return subnet
    raise OSError("no free subnet below 10.213.0.0/16")


def _remove_dead_runs() -> None:
    names = os.listdir(_NAMESPACES) if _NAMESPACES.is_dir() else []
    for pid in {int(found[1]) for name in names if (found := _OURS.match(name))}:
        if not Path(f"/proc/{pid}").exists():
            _remove(f"psnet{pid}.")


def _remove(prefix: str) -> None:
    """Namespaces with this prefix, and what still runs in them. The kernel removes their interfaces somewhat later."""
    with suppress(OSError):  # it was not made, or is gone
        _run("ip", "link", "del", prefix.rstrip("."))
    for name in sorted(os.listdir(_NAMESPACES) if _NAMESPACES.is_dir() else []):
        if name.startswith(prefix):
            for pid in _run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run("ip", "netns", "del", name)
