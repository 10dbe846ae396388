"""Open-loop sender over one connection: single-message calls at a fixed rate, independent of answers, counted by code."""

import socket
import threading
import time
from collections import Counter

from common import contract
from common.contract import Credential, Message, SendRequest
from common.credential import mint


class OpenLoad:
    """Sends `rate` messages per second in small bursts from a thread until `stop()`; `counts` are the codes so far.

    A call refused or held delays the next burst of this connection only by its own answer, so the rate stands as long
    as answers take less than the gap.
    """

    def __init__(self, address, application, topic: str, rate: float, burst: int = 1, body: bytes = b"x" * 100):
        self.counts: Counter[int] = Counter()
        self.latencies_s: list[float] = []
        self._address, self._topic, self._rate, self._burst, self._body = address, topic, rate, burst, body
        self._credential = Credential(*mint(*application, time.time_ns() // 1_000_000))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        messages = [Message(topic=self._topic, body=self._body)] * self._burst
        frame = contract.encode_call("send", 1, SendRequest(credential=self._credential, messages=messages))
        call = len(frame).to_bytes(4, "big") + frame
        began, sent = time.monotonic(), 0
        with socket.create_connection(self._address) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = sock.makefile("rb")
            while not self._stop.is_set():
                due = began + sent / self._rate
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                asked = time.monotonic()
                sock.sendall(call)
                reply = file.read(int.from_bytes(file.read(4), "big"))
                self.latencies_s.append(time.monotonic() - asked)
                for result in contract.decode_reply(reply, 1).results:
                    self.counts[result.code] += 1
                sent += self._burst
