"""Honest clients beside a flood: what a call takes on open connections and on new ones, plain and over TLS.

They run in a process of their own, so that the flood's client does not make them late. Windows with and without the flood
alternate, because the machine has other work: the ratio of two neighbouring windows says more than a time.
"""

import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from common import contract
from common.contract import Code, Message, PullRequest, SendRequest, decode_reply
from tests.e2e.running import Application
from tests.fault.hostile_frames import framed
from tests.fault.paced import percentile
from tests.fault.processes import forget_peak, pss_bytes, rss_bytes, rss_bytes_peak
from tests.fault.stock_clients import credential

PAUSE_S = 0.005
NEW_EVERY_S = 0.25
QUIET_S_MAX = 3.0
ANSWER_S_MAX = 8.0  # less than the greeting deadline: a machine without time for a handshake is no refusal
MIB = 1 << 20
OPEN, NEW, OPEN_TLS, NEW_TLS, PAGE = "open", "new", "open, TLS", "new, TLS", "page"


class HonestTarget(NamedTuple):
    """Addresses for the calls of honest clients. `tls` None: there is no listener with TLS; `is_pull`: a consumer proxy.

    `page` None: none is asked for; else where /healthz is, by connections of their own.
    """

    plain: tuple[str, int]
    who: Application
    topic: str
    tls: tuple[str, int] | None = None
    is_pull: bool = False
    page: tuple[str, int] | None = None

    def call(self) -> bytes:
        who = credential(self.who)
        if self.is_pull:
            pull = PullRequest(credential=who, group="honest", topics=[self.topic], max_messages=1)
            return framed(contract.encode_call("pull", 1, pull))
        return framed(
            contract.encode_call("send", 1, SendRequest(credential=who, messages=[Message(topic=self.topic)]))
        )


def honest_calls(target: HonestTarget, seconds: float) -> tuple[dict[str, list[float]], list[str]]:
    """The times of the calls by kind, and a sentence per call that was not answered with OK."""
    took_s: dict[str, list[float]] = {}
    failed: list[str] = []
    kinds = [(OPEN, target.plain, None), (NEW, target.plain, None)]
    if target.tls is not None:
        context = ssl._create_unverified_context()
        kinds += [(OPEN_TLS, target.tls, context), (NEW_TLS, target.tls, context)]
    if target.page is not None:
        kinds.append((PAGE, target.page, None))
    open_ones: dict[str, socket.socket] = {}
    call, new_s, end_s = target.call(), 0.0, time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        is_new_due = now_s >= new_s
        new_s = now_s + NEW_EVERY_S if is_new_due else new_s
        for kind, address, context in kinds:
            is_new = kind in (NEW, NEW_TLS)
            if is_new and not is_new_due:
                continue
            began_s = time.monotonic()
            try:
                sock = open_ones.pop(kind, None) or _connected(address, context)
                (_read_page if kind == PAGE else _ask)(sock, call)
            except (OSError, EOFError) as error:
                failed.append(f"{kind}: {error!r}")
                continue
            took_s.setdefault(kind, []).append(time.monotonic() - began_s)
            if is_new or kind == PAGE:
                sock.close()
            else:
                open_ones[kind] = sock
        time.sleep(PAUSE_S)
    return took_s, failed


def _connected(address: tuple[str, int], context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection(address, ANSWER_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock)


def _ask(sock: socket.socket, call: bytes) -> None:
    sock.sendall(call)
    (size,) = struct.unpack(">I", exactly(sock, 4))
    answer: Any = decode_reply(exactly(sock, size))
    code = answer.code if hasattr(answer, "code") and not hasattr(answer, "results") else answer.results[0].code
    if code != Code.OK:
        raise OSError(f"code {code}")


def _read_page(sock: socket.socket, _: bytes) -> None:
    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    answer = b"".join(iter(lambda: sock.recv(65_536), b""))
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        raise OSError(f"{answer[:80]!r}")


def exactly(sock: socket.socket, size: int) -> bytes:
    """Receive so many bytes. Raises EOFError when the other end closes."""
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise EOFError("closed")
        data += chunk
    return bytes(data)


@dataclass
class Beside:
    """What is measured in alternating windows.

    Attributes:
        alone, among: times of calls by kind, without and with the flood.
        failed: calls that were not answered with OK, in any window.
        flood: what the flood has counted in all its windows.
    """

    target: HonestTarget
    pool: ProcessPoolExecutor
    alone: dict[str, list[float]] = field(default_factory=dict)
    among: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    flood: Counter[str] = field(default_factory=Counter)

    def warm_up(self) -> None:
        """Have each kind of call made."""
        self.pool.submit(honest_calls, self.target, 1.0).result()

    def windows(self, flood: Callable[..., Counter[str]], *arguments: Any, seconds: float) -> Counter[str]:
        """One window without and one with `flood(*arguments, seconds)`; returns what this flood has counted."""
        self._honest(min(seconds, QUIET_S_MAX), self.alone)
        flooding = self.pool.submit(flood, *arguments, seconds)
        self._honest(seconds, self.among)
        counted = flooding.result()
        self.flood += counted
        return counted

    def _honest(self, seconds: float, into: dict[str, list[float]]) -> None:
        took_s, failed = self.pool.submit(honest_calls, self.target, seconds).result()
        self.failed += failed
        for kind, values in took_s.items():
            into.setdefault(kind, []).extend(values)

    def lines(self) -> str:
        """A line per kind of call: number of calls, p50 and p99 without and with the flood in ms, and the ratios."""
        found = []
        for kind, alone in self.alone.items():
            among = self.among.get(kind, [])
            halves = [(percentile(alone, share) * 1e3, percentile(among, share) * 1e3) for share in (0.5, 0.99)]
            told = "; ".join(
                f"{name} {before:.2f} → {after:.2f} ms ({after / before if before else 0:.1f})"
                for name, (before, after) in zip(("p50", "p99"), halves, strict=True)
            )
            found.append(f"{kind}: {len(alone)} and {len(among)} calls, {told}")
        return "\n".join(found)


def processes() -> ProcessPoolExecutor:
    """Two processes of Python without what the test's process has loaded: honest clients, and a flood."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


class Memory:
    """Resident memory of a process, from before a flood on; in its line the shared part, too (PSS)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before, self._pss = rss_bytes(pid), pss_bytes(pid)
        forget_peak(pid)

    @property
    def peak(self) -> int:
        """Growth at the peak."""
        return rss_bytes_peak(self._pid) - self.before

    @property
    def kept(self) -> int:
        """Growth now."""
        return rss_bytes(self._pid) - self.before

    def line(self) -> str:
        """Before, at the peak, now."""
        return (
            f"MiB {self.before / MIB:.1f}, peak +{self.peak / MIB:.1f}, now {self.kept / MIB:+.1f}, "
            f"PSS {self._pss / MIB:.1f} → {pss_bytes(self._pid) / MIB:.1f}"
        )


def log_bytes(folder: Path) -> int:
    """Bytes of all log files."""
    return sum(path.stat().st_size for path in folder.glob("*.log*"))
