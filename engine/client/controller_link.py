"""A controller's link to one broker of a group: reports in, records out. Blocking, over a plain socket. Needs no gevent."""

import json
import select
import socket
import time
from typing import NamedTuple

from common.cluster.coordination import VersionedRecord, encode_record
from common.cluster.reports import BrokerReport
from engine.client.dial import Hello, Keys, dial
from engine.link.codes import OK
from engine.link.errors import LinkError
from engine.link.frame import FRAME_REST_SIZE, HEADER, HEADER_SIZE, frame
from engine.link.integers import U64
from engine.link.operations import HAND_OVER, RECORD, REPORT
from engine.link.proof import CONTROLLER_ROLE

READ_BYTES = 65_536
REPORT_BYTES_MAX = 1 << 20


class RefusedRecord(NamedTuple):
    """The broker has not adopted a record that was pushed; why, in one sentence."""

    sentence: str


class ControllerLink:
    """One link. `receive` is for one thread; `push` and `end` may be called from others.

    Attributes:
        hello: of the broker.
        pushed: epoch and version of the newest record that was sent.
    """

    def __init__(self, address: tuple[str, int], key: Keys, *, timeout_s: float) -> None:
        """Connect and ask for reports. Raises OSError, LinkError."""
        self._sock, self.hello = dial(address, key, role=CONTROLLER_ROLE, timeout_s=timeout_s)
        self.pushed = (0, 0)
        self._input = bytearray()
        self._request_id = 1
        self._sock.setblocking(False)
        self._readable = select.poll()
        self._readable.register(self._sock, select.POLLIN)
        self._send(frame(REPORT, self._request_id, b""))

    hello: Hello
    _sock: socket.socket

    def __enter__(self) -> "ControllerLink":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def end(self) -> None:
        """End the connection: `receive` raises. The socket stays open until the `with` ends."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the broker has closed it

    def push(self, record: VersionedRecord) -> None:
        """Send a record, without blocking, unless this or a newer one was sent. A link that takes no more is ended."""
        place = record.record.epoch, record.version
        if place > self.pushed:
            self.pushed = place
            self._request_id += 1
            self._send(frame(RECORD, self._request_id, U64.pack(record.version) + encode_record(record.record)))

    def hand_over(self, version: int, timeout_s: float) -> str:
        """Ask the master to prepare for the record that follows this version. Instead of `receive`, in its thread.

        Returns "" when that record can be written now, else the reason why the master leads on.

        Raises: OSError, LinkError.
        """
        deadline = time.monotonic() + timeout_s
        self._request_id += 1
        self._send(frame(HAND_OVER, self._request_id, U64.pack(version)))
        while True:
            op, code, payload = self._frame(deadline)
            if op == HAND_OVER:
                return "" if code == OK else payload.decode("utf-8", "replace") or f"refused with code {code}"

    def _send(self, data: bytes) -> None:
        try:
            sent = self._sock.send(data)
        except OSError:
            sent = 0
        if sent < len(data):  # a few kilobytes that find no room: the broker has stopped reading
            self.end()

    def receive(self, timeout_s: float) -> BrokerReport | RefusedRecord:
        """The next report, or the refusal of a record.

        Raises:
            TimeoutError: none came in that time.
            OSError: the link has ended.
            LinkError: the broker gives no reports, or sends what is none.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            op, code, payload = self._frame(deadline)
            if op == RECORD and code != OK:
                return RefusedRecord(payload.decode("utf-8", "replace"))
            if op != REPORT:
                continue
            if code != OK:
                raise LinkError(payload.decode("utf-8", "replace") or f"REPORT: refused with code {code}")
            try:
                return BrokerReport.from_value(json.loads(payload))
            except ValueError as error:
                raise LinkError(f"REPORT: {error}") from error

    def _frame(self, deadline: float) -> tuple[int, int, bytes]:
        """(operation, code, payload) of the next frame."""
        head = self._first(HEADER_SIZE, deadline)
        size, op, _, code, _, _ = HEADER.unpack(head)
        if not FRAME_REST_SIZE <= size <= REPORT_BYTES_MAX:
            raise LinkError(f"not a frame of a broker's report: {size} bytes")
        data = self._first(4 + size, deadline)
        del self._input[: 4 + size]
        return op, code, data[HEADER_SIZE:]

    def _first(self, size: int, deadline: float) -> bytes:
        """The first bytes of the input; they stay there."""
        while len(self._input) < size:
            left_ms = max(0.0, deadline - time.monotonic()) * 1000
            if not self._readable.poll(left_ms):
                raise TimeoutError("no report in time")
            chunk = self._sock.recv(READ_BYTES)
            if not chunk:
                raise ConnectionError("the broker closed the link")
            self._input += chunk
        return bytes(self._input[:size])
