"""A broker of a group, as far as a controller knows it: registers, reports, adopts records. What it reports is the test's."""

import json
import socket
import threading
from contextlib import suppress
from dataclasses import replace

from common.cluster.coordination import Coordination, Registration, parse_record
from common.cluster.group_record import GroupRecord, LogPoint
from common.cluster.reports import BrokerReport, FollowerReport
from engine.link import layout
from engine.link.frame import UNASKED
from engine.link.integers import U64
from engine.link.proof import client_proof, engine_proof, transcript

KEY = b"k" * 32
LOG = "0123456789abcdef"
REPORT_S = 0.1


class FakeReplica:
    """
    Attributes:
        adopted: (version, record) in the order of adoption; pushed ones only.
        offered: versions of the records that were pushed.
        linked: links that have asked for reports.
        is_silent: set: it sends nothing, as a process that hangs.
        refusal: what it answers to records; "": it adopts them.
        handed_over: versions for which it was asked to hand over. leads_on: why it does not; "": it does.

    Args:
        greeting: the name in its HELLO; "": its own.
    """

    def __init__(
        self, coordination: Coordination, group: str, name: str, incarnation: int, *, greeting: str = ""
    ) -> None:
        self.name, self.incarnation, self._greeting = name, incarnation, greeting or name
        self.adopted: list[tuple[int, GroupRecord]] = []
        self.linked = 0
        self.offered: list[int] = []
        self.is_silent = threading.Event()
        self.refusal = self.leads_on = ""
        self.handed_over: list[int] = []
        self._report = BrokerReport(
            incarnation, 0, "", LogPoint(0, 0), continues=frozenset((incarnation,)), is_settled=True
        )
        self._coordination, self._group = coordination, group
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        for run in (self._accept, self._repeat):
            threading.Thread(target=run, daemon=True).start()
        coordination.register(group, name, Registration(incarnation, self.address))

    def tell(self, **changes: object) -> None:
        """Change the report, and send it at once."""
        with self._lock:
            self._report = replace(self._report, **changes)
        self._send_all()

    def follow(self, *slaves: "FakeReplica", **changes: object) -> None:
        """As the master: these follow, without a gap."""
        seen = {"gap": 0, "is_lost": False, "has_all": True, **changes}
        self.tell(followers={each.name: FollowerReport(each.incarnation, **seen) for each in slaves})

    @property
    def record(self) -> GroupRecord | None:
        """The record that it has adopted."""
        return self.adopted[-1][1] if self.adopted else None

    def stop(self) -> None:
        """End it as `kill -9` does, and its registration."""
        self._stopped.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_links()
        self._coordination.unregister(self._group, self.name)

    @property
    def has_links(self) -> bool:
        return bool(self._links)

    def break_links(self) -> None:
        for sock in list(self._links):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._stopped.is_set():
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _repeat(self) -> None:
        while not self._stopped.wait(REPORT_S):
            self._send_all()

    def _send_all(self) -> None:
        for sock in list(self._links):
            self._send(sock, layout.REPORT, UNASKED, json.dumps(self._report.to_value()).encode())

    def _send(self, sock: socket.socket, op: int, request_id: int, payload: bytes, code: int = 0) -> None:
        with self._lock, suppress(OSError):
            if not self.is_silent.is_set():
                sock.sendall(layout.frame(op, request_id, payload, code))

    def _serve(self, sock: socket.socket) -> None:
        asked = greeted = b""
        with suppress(OSError), sock, sock.makefile("rb") as file:
            while head := file.read(layout.HEADER_SIZE):
                size, op, _, _, request_id, _ = layout.HEADER.unpack(head)
                payload = file.read(size + 4 - layout.HEADER_SIZE)
                if op == layout.HELLO:
                    asked, greeted = payload, self._hello()
                    assert json.loads(asked)["role"] == "controller"
                    self._send(sock, op, request_id, greeted)
                elif op == layout.AUTH:
                    if payload != client_proof(KEY, transcript(asked, greeted)):
                        break
                    self._send(sock, op, request_id, engine_proof(KEY, transcript(asked, greeted)))
                elif op == layout.REPORT:
                    self._send(sock, op, request_id, json.dumps(self._report.to_value()).encode())
                    self._links.add(sock)
                    self.linked += 1
                elif op == layout.HAND_OVER:
                    self.handed_over.append(U64.unpack(payload)[0])
                    code = layout.UNAVAILABLE if self.leads_on else 0
                    self._send(sock, op, request_id, self.leads_on.encode(), code)
                else:
                    assert op == layout.RECORD, op
                    self._send(sock, op, request_id, self.refusal.encode(), layout.UNAVAILABLE if self.refusal else 0)
                    self._adopt(payload)
        self._links.discard(sock)

    def _hello(self) -> bytes:
        said = {"version": layout.VERSION, "log_id": self._report.log_id, "broker_group": self._group}
        return json.dumps({**said, "broker": self._greeting, "nonce": "00" * 16, "leads": False}).encode()

    def _adopt(self, payload: bytes) -> None:
        (version,) = U64.unpack_from(payload)
        self.offered.append(version)
        if version > self._report.version and not self.refusal:
            record = parse_record(payload[U64.size :], "a pushed record")
            self.adopted.append((version, record))
            self.tell(version=version, log_id=LOG, log=LogPoint(record.epoch, 100))
