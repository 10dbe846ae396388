"""Floods of strangers. Each function runs in a process of its own, from many addresses of the loopback network."""

import contextlib
import resource
import selectors
import socket
import ssl
import struct
import time
from collections import Counter

ADDRESSES = 200
ANSWER_BYTES = 65_536
RESET = struct.pack("ii", 1, 0)


def room_for(descriptors: int) -> None:
    """Raise this process's limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(descriptors, hard)), hard))


def stranger(address: tuple[str, int], number: int) -> socket.socket:
    """A connection that is begun, from one of ADDRESSES addresses; non-blocking."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # leaves no TIME_WAIT behind
    sock.bind((f"127.0.9.{1 + number % ADDRESSES}", 0))
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


def client_hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl._create_unverified_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def half_open(address: tuple[str, int], count: int, seconds: float) -> Counter[str]:
    """So many connections within the seconds, each with a ClientHello and then silence."""
    room_for(count + 100)
    found: Counter[str] = Counter()
    hello, began_s = client_hello(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        while (now_s := time.monotonic()) < began_s + seconds:
            due = min(count, int(count * (now_s - began_s) / (seconds * 0.8)) + 1)
            while found["begun"] < due:
                sock = stranger(address, found["begun"])
                selector.register(sock, selectors.EVENT_WRITE)
                found["begun"] += 1
            for key, events in selector.select(0.02):
                _go_on(selector, key.fileobj, events, hello, found)
        for key in [*selector.get_map().values()]:
            key.fileobj.close()  # type: ignore[union-attr]
            found["open at the end"] += 1
    return found


def _go_on(selector: selectors.BaseSelector, sock: socket.socket, events: int, hello: bytes, found: Counter) -> None:
    try:
        if events & selectors.EVENT_WRITE:
            sock.send(hello)
            selector.modify(sock, selectors.EVENT_READ)
            return
        if sock.recv(ANSWER_BYTES):
            found["answered"] += 1
            return
        found["closed"] += 1
    except OSError as error:
        found[type(error).__name__] += 1
    selector.unregister(sock)
    sock.close()


def handshakes(address: tuple[str, int], count: int, seconds: float) -> Counter[str]:
    """Whole handshakes one after the other, each on a connection that is then reset; `count` at most."""
    found: Counter[str] = Counter()
    context, end_s = ssl._create_unverified_context(), time.monotonic() + seconds
    while time.monotonic() < end_s and found["begun"] < count:
        found["begun"] += 1
        sock = socket.socket()
        try:
            sock.bind((f"127.0.9.{1 + found['begun'] % ADDRESSES}", 0))
            sock.settimeout(5)
            sock.connect(address)
            sock = context.wrap_socket(sock)
            found["done"] += 1
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError as error:
            found[type(error).__name__] += 1
        sock.close()
    return found


NUMBER = b"%012d"
PER_CONNECTION = 5  # the answers to further wrong credentials of a connection are delayed
CONCURRENT = 100
LATE_S_MAX = 20.0  # for the last answers of a window


def unknown_ids(address: tuple[str, int], template: bytes, first: int, count: int, seconds: float) -> Counter[str]:
    """Calls with a wrong credential, each with an application id of its own, over as many connections as it takes.

    Args:
        template: a framed call whose id has the digits of `NUMBER % 0`.
        first: the first id's number.
    """
    found: Counter[str] = Counter()
    head, tail = template.split(NUMBER % 0)
    waiting: dict[socket.socket, int] = {}  # bytes of answers
    end_s, size = time.monotonic() + seconds, 0
    with selectors.DefaultSelector() as selector:
        while (now_s := time.monotonic()) < end_s + LATE_S_MAX and (
            waiting or (now_s < end_s and found["calls"] < count)
        ):
            while len(waiting) < CONCURRENT and now_s < end_s and found["calls"] < count:
                sock = stranger(address, found["connections"])
                found["connections"] += 1
                waiting[sock] = 0
                calls = (head + NUMBER % (first + found["calls"] + each) + tail for each in range(PER_CONNECTION))
                selector.register(sock, selectors.EVENT_WRITE, b"".join(calls))
                found["calls"] += PER_CONNECTION
            for key, events in selector.select(0.02):
                sock = key.fileobj
                try:
                    if events & selectors.EVENT_WRITE:
                        sock.send(key.data)
                        selector.modify(sock, selectors.EVENT_READ)
                        continue
                    data = sock.recv(ANSWER_BYTES)
                    size = size or 4 + int.from_bytes(data[:4], "big")
                    waiting[sock] += len(data)
                    if data and waiting[sock] < PER_CONNECTION * size:
                        continue
                    found["answers"] += waiting[sock] // size
                except OSError as error:
                    found[type(error).__name__] += 1
                selector.unregister(sock)
                del waiting[sock]
                sock.close()
        for sock in waiting:
            sock.close()
    return found


def unknown_ids_on_one(address: tuple[str, int], template: bytes, first: int, seconds: float) -> Counter[str]:
    """The same over one connection, which is replaced when it is closed."""
    found: Counter[str] = Counter()
    head, tail = template.split(NUMBER % 0)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        found["connections"] += 1
        with socket.create_connection(address, 5) as sock, contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.settimeout(0.05)
            while time.monotonic() < end_s:
                with contextlib.suppress(TimeoutError):
                    sock.sendall(head + NUMBER % (first + found["calls"]) + tail)
                    found["calls"] += 1
                    if not (data := sock.recv(ANSWER_BYTES)):
                        break
                    found["answer bytes"] += len(data)
    return found
