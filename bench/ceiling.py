"""Cost of the generator itself: `python -m bench.ceiling` runs it against a server that does no work.

Question: how many calls per second can the generator drive from one core, and what does one call cost it?
Settings: 16 connections, 128-byte bodies, 16 topics, closed loop; calls of 1 and of 50; pulls of 1,000 with
    acknowledgements.
Excluded: everything of Penstock's servers. The server is a forked process that answers each call with the same prepared
bytes. Its CPU is the minimum of any server on this machine.
"""

import os
import resource
import socket
import struct
import sys
from dataclasses import dataclass

from bench._load import Load
from bench._requests import PullFrames, SendFrames
from bench._stub import Stub

WARMUP_S = 0.3


@dataclass(frozen=True)
class Cost:
    """Figures of one run against the stub; `server_s` is the stub's CPU, all others are the generator's."""

    name: str
    calls: int
    messages: int
    window_s: float
    user_s: float
    system_s: float
    server_s: float

    @property
    def call_us(self) -> float:
        return (self.user_s + self.system_s) / self.calls * 1e6

    def line(self) -> str:
        user_us = self.user_s / self.calls * 1e6
        return (
            f"{self.name}: {self.calls / self.window_s:,.0f} calls/s, {self.messages / self.window_s:,.0f} messages/s, "
            f"generator CPU {self.call_us:.2f} µs per call (own code {user_us:.2f}, kernel {self.call_us - user_us:.2f}), "
            f"{1e6 / self.call_us:,.0f} calls/s per core; the server's {self.server_s / self.calls * 1e6:.2f} µs per call"
        )


def send_answer(messages: int) -> bytes:
    """Encode a SendResponse of OKs with id, queue and offset, as the proxy would."""
    result = (
        b"\x08\0\1"
        + bytes(4)
        + b"\x0b\0\2\0\0\0\x20"
        + b"0" * 32
        + b"\x08\0\3"
        + bytes(4)
        + b"\x0a\0\4"
        + bytes(8)
        + b"\0"
    )
    return _reply(b"send", b"\x0f\0\1\x0c" + struct.pack(">I", messages) + result * messages)


def pull_answer(deliveries: int, body_size: int) -> bytes:
    """Encode a PullResponse with that many deliveries and as many OKs for acknowledgements."""
    message = b"\x0b\0\1\0\0\0\x08bench-00" + b"\x0b\0\2" + struct.pack(">I", body_size) + bytes(body_size) + b"\0"
    delivery = (
        b"\x0b\0\1\0\0\0\x34" + bytes(52) + b"\x08\0\2" + bytes(4) + b"\x0a\0\3" + bytes(8) + b"\x08\0\4\0\0\0\1"
        b"\x0a\0\5" + bytes(8) + b"\x0b\0\6\0\0\0\x20" + b"0" * 32 + b"\x0c\0\7" + message + b"\0"
    )
    fields = b"\x08\0\1" + bytes(4) + b"\x0f\0\2\x0c" + struct.pack(">I", deliveries) + delivery * deliveries
    return _reply(
        b"pull",
        fields + b"\x0f\0\3\x0c" + struct.pack(">I", deliveries) + (b"\x08\0\1" + bytes(4) + b"\0") * deliveries,
    )


def _reply(name: bytes, fields: bytes) -> bytes:
    body = b"\x80\1\0\2\0\0\0\4" + name + bytes(4) + b"\x0c\0\0" + fields + b"\0\0"
    return struct.pack(">I", len(body)) + body


def connected_pairs(count: int) -> tuple[list[socket.socket], list[socket.socket]]:
    """Connect client and server ends of loopback TCP."""
    with socket.create_server(("127.0.0.1", 0), backlog=count) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
        servers = [listener.accept()[0] for _ in range(count)]
    for end in (*clients, *servers):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
    return clients, servers


def measure(
    name: str, *, batch: int = 1, pull: int = 0, connections: int = 16, seconds: float = 2.0, size: int = 128
) -> Cost:
    """Run one closed loop against a forked stub; `pull` above 0 pulls that many per call instead of sending."""
    clients, servers = connected_pairs(connections)
    child = os.fork()
    if child == 0:
        for end in clients:
            end.close()
        Stub(servers, send_answer(batch), pull_answer(pull, size)).serve()
        os._exit(0)
    for end in servers:
        end.close()
    usage = []
    topics = [b"bench-%02d" % number for number in range(16)]
    ends = (
        {"consumers": clients, "pull": PullFrames(b"bench", topics, max_messages=pull)}
        if pull
        else {"producers": clients, "send": SendFrames(topics, size), "batch": batch}
    )
    load = Load(
        **ends,
        mint=lambda: bytes(150),
        seconds=seconds,
        warmup_s=WARMUP_S,
        on_window=lambda opens: usage.append(resource.getrusage(resource.RUSAGE_THREAD)),
    )
    counts = load.run()
    for end in clients:
        end.close()
    _, _, spent = os.wait4(child, 0)
    calls, messages = (counts["pulls"], counts["deliveries"]) if pull else (counts["calls"], counts["messages"])
    user_s, system_s = usage[1].ru_utime - usage[0].ru_utime, usage[1].ru_stime - usage[0].ru_stime
    window_s = counts["window_s"]
    server_s = (spent.ru_utime + spent.ru_stime) * window_s / (window_s + WARMUP_S)
    return Cost(name, calls, messages, window_s, user_s, system_s, server_s)


def main() -> int:
    for name, options in (("calls of 1", {}), ("calls of 50", {"batch": 50}), ("pulls of 1,000", {"pull": 1000})):
        print(measure(name, **options).line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
