"""Open loop in a separate process: calls of one message at a fixed rate, independent of the answers' latency.

A call begins at its planned time on a free connection; connections are added as needed. Its latency counts from the
planned time.
"""

import multiprocessing
import select
import socket
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from bench.generator import LoadTarget
from common.contract import Credential, Message, SendRequest, decode_reply, encode_call
from common.credential import mint

CONNECTIONS_MAX = 2000
DRAIN_S = 5.0


@dataclass
class Slot:
    """Answers to the calls planned in one time slot.

    `late_s`: delay of the latest start, caused by the generator itself.
    """

    codes: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)  # of stored messages
    late_s: float = 0.0


Slots = dict[int, Slot]


class Offered:
    """Offers messages to a topic from now on; `result()` blocks until all are answered.

    Args:
        rate: messages per second; 0: a closed loop over `connections`.
        slot_s: the slots' length; slot 0 begins at `began_s`, of the monotonic clock.
    """

    def __init__(
        self, target: LoadTarget, topic: str, rate: float, seconds: float, *,
        body_bytes: int, slot_s: float, began_s: float, connections: int = 0,
    ) -> None:  # fmt: skip
        self._end, other = multiprocessing.Pipe(duplex=False)
        sender = _Sender(target, topic, body_bytes, slot_s, began_s)
        self._process = multiprocessing.Process(
            target=sender.run, args=(other, rate, seconds, connections), daemon=True
        )
        self._process.start()
        other.close()

    def result(self) -> Slots:
        """Block until all messages are answered and return the answers by slot."""
        found: Slots = self._end.recv()
        self._process.join()
        return found


class _Sender:
    def __init__(self, target: LoadTarget, topic: str, body_bytes: int, slot_s: float, began_s: float) -> None:
        self._target, self._slot_s, self._began_s = target, slot_s, began_s
        credential = Credential(*mint(target.app, target.key_id, target.secret, time.time_ns() // 1_000_000))
        frame = encode_call("send", 1, SendRequest(credential, [Message(topic=topic, body=b"x" * body_bytes)]))
        self._call = len(frame).to_bytes(4, "big") + frame
        self._slots: Slots = defaultdict(Slot)
        self._idle: deque[socket.socket] = deque()
        self._open: dict[int, tuple[socket.socket, float]] = {}  # by descriptor, with the planned time of its call
        self._count = 0

    def run(self, end: Connection, rate: float, seconds: float, connections: int) -> None:
        self._poll = select.epoll()
        for _ in range(connections):
            self._idle.append(self._connect())
        until = time.monotonic() + seconds
        due = time.monotonic()
        while time.monotonic() < until:
            now = time.monotonic()
            if rate:
                while due <= now and self._start(due):
                    due += 1 / rate
            else:
                while self._idle:
                    self._start(now)
                due = until
            self._take(max(0.0, min(due, until) - time.monotonic()))
        drained = time.monotonic() + DRAIN_S
        while self._open and time.monotonic() < drained:
            self._take(0.1)
        for _, planned in self._open.values():
            self._slot(planned).codes[-1] += 1  # never answered
        end.send(dict(self._slots))

    def _connect(self) -> socket.socket:
        self._count += 1
        sock = socket.create_connection(self._target.producer)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return sock

    def _start(self, planned: float) -> bool:
        if not self._idle and self._count >= CONNECTIONS_MAX:
            return False
        sock = self._idle.popleft() if self._idle else self._connect()
        self._open[sock.fileno()] = sock, planned
        slot = self._slot(planned)
        slot.late_s = max(slot.late_s, time.monotonic() - planned)
        sock.sendall(self._call)
        return True

    def _take(self, wait_s: float) -> None:
        for descriptor, _ in self._poll.poll(wait_s):
            sock, planned = self._open.pop(descriptor)
            data = sock.recv(65_536)
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                data += sock.recv(65_536)
            (result,) = decode_reply(data[4:], 1).results  # type: ignore[attr-defined]
            slot = self._slot(planned)
            slot.codes[result.code] += 1
            if result.code == 0:
                slot.latencies_s.append(time.monotonic() - planned)
            self._idle.append(sock)

    def _slot(self, planned: float) -> Slot:
        return self._slots[int((planned - self._began_s) // self._slot_s)]
