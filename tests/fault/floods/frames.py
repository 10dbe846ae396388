"""Mutated frames for the ports of running processes, over many connections at once, in a process of their own."""

import contextlib
import random
import re
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.fault.floods.strangers import ADDRESSES, ANSWER_BYTES, RESET, room_for
from tests.fuzz.mutate import mutated
from tests.link_bytes import RawLink

THREADS = 32
WAIT_S = 0.1  # for answers: on a busy machine much less ends connections that are about to answer
PAGE_WAIT_S = 0.25
WELL_FRAMED = 0.9  # of the frames have the size that their head says, so that what is in them is looked at
KEPT_HEAD = 0.6  # of the frames keep their head: the credential, or the operation
PER_CONNECTION = 40
TOGETHER = 8  # frames that are sent at once, where their sizes are right: the answers are counted
SEND_S_MAX = 5.0
CLIENT_TLS = ssl._create_unverified_context()
CONTENT_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)", re.IGNORECASE)


class FloodedPort(NamedTuple):
    """
    Attributes:
        address: host and port, or ("unix", path).
        form: of the frames: "thrift", "link", "http" or "bytes".
        seeds: whole frames, with their size.
        head: bytes with which seeds begin, behind the size, and which most mutants keep.
        prologue: "tls"; "proof": of a link; "" without one.
        role, key: of the proof.
        headers, fields: of HTTP, which most mutants have: of a session, and before what is in a form.
        wait_s: for the next answer.
    """

    address: tuple[str, int | str]
    form: str
    seeds: list[bytes]
    head: int = 0
    prologue: str = ""
    role: str = ""
    key: bytes = b""
    headers: bytes = b""
    fields: bytes = b""
    wait_s: float = WAIT_S


def mutated_frames(port: FloodedPort, count: int, seed: int, seconds: float) -> Counter[str]:
    """So many mutated frames, or as many as the seconds allow; counts what came of each."""
    room_for(2_000)
    found: Counter[str] = Counter()
    end_s = time.monotonic() + seconds
    workers = [
        _Worker(port, count // THREADS + 1, random.Random(seed * 1_000 + number), end_s) for number in range(THREADS)
    ]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for worker in workers:
        found += worker.found
    return found


class _Worker:
    """One thread: a frame, then its answer, an end, or nothing for a while."""

    def __init__(self, port: FloodedPort, count: int, rng: random.Random, end_s: float) -> None:
        self._port, self._count, self._rng, self._end_s = port, count, rng, end_s
        self._sock: socket.socket | None = None
        self._left = 0
        self.found: Counter[str] = Counter()

    def run(self) -> None:
        while self.found["frames"] < self._count and time.monotonic() < self._end_s:
            if self._sock is None and not self._connect():
                continue
            answers_before = self.found["answered"]
            try:
                came = self._show()
            except OSError as error:
                came = type(error).__name__
            if came:
                self.found[came] += 1
            self.found["frames"] += self.found["answered"] - answers_before + bool(came)
            self._left -= 1
            if came or self._left <= 0:
                self._end()
        self._end()

    def _show(self) -> str:
        """Send some frames; returns what came in place of an answer, or ""."""
        assert self._sock is not None
        make, frames = FRAMES[self._port.form], []
        while len(frames) < TOGETHER:
            frame, is_framed = make(self._port, self._rng)
            if not is_framed:
                frames = frames or [frame]
                break
            frames.append(frame)
        self._sock.settimeout(SEND_S_MAX)
        self._sock.sendall(b"".join(frames))
        self._sock.settimeout(self._port.wait_s)
        received, wanted = bytearray(), len(frames)
        while True:
            try:
                chunk = self._sock.recv(ANSWER_BYTES)
            except TimeoutError:
                return "waits"
            if not chunk:
                return "closed"
            received += chunk
            if not is_framed and wanted == 1:
                self.found["answered"] += 1
                return ""
            while wanted > 0 and (size := answer_size(self._port.form, received)) and len(received) >= size:
                del received[:size]
                self.found["answered"] += 1
                wanted -= 1
            if wanted <= 0:
                return ""

    def _connect(self) -> bool:
        self._left = self._rng.randint(1, PER_CONNECTION)
        try:
            self._sock = self._opened()
        except (OSError, AssertionError) as error:
            self.found[f"not connected: {type(error).__name__}"] += 1
            time.sleep(WAIT_S)
            return False
        return True

    def _opened(self) -> socket.socket:
        host, port = self._port.address
        if host == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(SEND_S_MAX)
            sock.connect(str(port))
        else:
            sock = socket.socket()
            sock.settimeout(SEND_S_MAX)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.bind((f"127.0.9.{1 + self._rng.randrange(ADDRESSES)}", 0))
            sock.connect((host, port))
        if self._port.prologue == "tls":
            return CLIENT_TLS.wrap_socket(sock)
        if self._port.prologue == "proof":
            proved(sock, self._port.key, self._port.role)
        return sock

    def _end(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.close()
        self._sock = None


def proved(sock: socket.socket, key: bytes, role: str) -> RawLink:
    """Greet as a client of the link with a right key."""
    link = RawLink.__new__(RawLink)
    link.sock = sock
    link.prove(key, role)
    return link


def answer_size(form: str, received: bytearray) -> int:
    """Of the first answer; 0: it is not known yet."""
    if form == "http":
        head, end, _ = bytes(received).partition(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(head)
        return len(head) + len(end) + int(length[1] if length else 0) if end else 0
    if len(received) < 4:
        return 0
    return 4 + int.from_bytes(received[:4], "little" if form == "link" else "big")


def thrift_frame(port: FloodedPort, rng: random.Random) -> tuple[bytes, bool]:
    """A mutant, and whether its size is right."""
    frame = rng.choice(port.seeds)
    payload = frame[4:]
    if rng.random() < KEPT_HEAD:
        payload = payload[: port.head] + mutated([payload[port.head :]], rng)
    else:
        payload = mutated([payload], rng)
    if rng.random() < WELL_FRAMED:
        return struct.pack(">I", len(payload)) + payload, True
    return (payload if rng.random() < 0.5 else mutated([frame], rng)), False


def link_frame(port: FloodedPort, rng: random.Random) -> tuple[bytes, bool]:
    """The same for a link."""
    frame = rng.choice(port.seeds)
    if rng.random() >= WELL_FRAMED:
        return mutated([frame], rng), False
    head = frame[4:16] if rng.random() < KEPT_HEAD else mutated([frame[4:16]], rng)[:12].ljust(12, b"\0")
    payload = mutated([frame[16:] or b"\0"], rng)
    return struct.pack("<I", 12 + len(payload)) + head + payload, True


def http_request(port: FloodedPort, rng: random.Random) -> tuple[bytes, bool]:
    """A mutant; most have the length of their body and what the port adds, so that what is in them is looked at."""
    request = mutated(port.seeds, rng)
    line, _, rest = request.partition(b"\r\n")
    head, end, body = rest.partition(b"\r\n\r\n")
    if not end or rng.random() >= WELL_FRAMED:
        return request, False
    if rng.random() < KEPT_HEAD:
        line += b"\r\n" + port.headers.rstrip() if port.headers else b""
        body = port.fields + body if body else b""
    kept = (each for each in head.split(b"\r\n") if not each.lower().startswith(b"content-length"))
    length = b"\r\nContent-Length: %d" % len(body) if body else b""
    return line + b"\r\n" + b"\r\n".join(kept) + length + end + body, True


def bare_bytes(port: FloodedPort, rng: random.Random) -> tuple[bytes, bool]:
    return mutated(port.seeds, rng), False


FRAMES: dict[str, Callable[[FloodedPort, random.Random], tuple[bytes, bool]]] = {
    "thrift": thrift_frame, "link": link_frame, "http": http_request, "bytes": bare_bytes,
}  # fmt: skip
