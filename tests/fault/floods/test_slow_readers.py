"""Peers that do not read their answers: what each may keep of a process's memory, and that it is closed.

Clients that do not read what they pull are in tests/fault/test_flow_control.py.
"""

import http.client
import os
import select
import socket
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from common.contract import Code
from common.net.limits import UNREAD_BYTES_MAX
from console.parts import MAPS_MAX, MAPS_PER_ACCOUNT_MAX
from engine.broker.group_ops import FETCH_UNREAD_MAX
from engine.link.look_up import encode_look_up
from engine.link.operations import FETCH, LOOK_UP_KEY, PULL
from engine.link.proof import REPLICA_ROLE
from engine.link.pull import encode_pull
from engine.replication.frames import Fetch
from tests.fault.floods.frames import proved
from tests.fault.floods.honest import MIB, Memory
from tests.fault.floods.sessions import signed_in
from tests.fault.paced import percentile
from tests.fault.stock_clients import Sender, knows
from tests.link_bytes import frame
from tests.waiting import until

WINDOW_S = float(os.environ.get("PENSTOCK_FLOOD_WINDOW_S", "2"))
ASKED = 3_000  # questions, for answers of 256 KiB and more
SLACK_BYTES = 40 * MIB
VISITORS = 200


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory("--replicas", "2", "--look-up", "key", environment={"PENSTOCK_CONSOLE": "1"})


@pytest.fixture(scope="module")
def shop(penstock):
    made = penstock.application("shop", send=["*"], pull=["*"])
    for topic in ("orders", "honest"):
        penstock.run("topic", "create", topic, "--queues", "1", "--durability", "memory")
    with Sender(penstock.producer, made) as sender:
        knows(sender, "honest")
        knows(sender, "orders")
        for _ in range(12):
            assert sender.one("orders", os.urandom(2 * MIB), key="k").code == Code.OK
    return made


LINKS = {
    "a replica's link, FETCH": (
        REPLICA_ROLE, frame(FETCH, Fetch(0, 0, 256 << 10).encode()), FETCH_UNREAD_MAX + SLACK_BYTES),
    "a proxy's link, LOOK_UP": (
        "test", frame(LOOK_UP_KEY, encode_look_up(0, 100, None, topic="orders", key="k")), UNREAD_BYTES_MAX + 2 * SLACK_BYTES),
    "a proxy's link, PULL": ("test", frame(PULL, encode_pull("g", [("orders", 1)], invisible_ms=1_000)), 2 * SLACK_BYTES),
}  # fmt: skip


class UnreadLink:
    """A link that asks ASKED times and takes a byte per 50 ms, in a thread of its own."""

    def __init__(self, address, role, key, question):
        self.asked = 0
        self._question, self._stop = question, threading.Event()
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.connect(address)
        self._ends = tuple(f":{port:04X}" for _, port in (self.sock.getpeername(), self.sock.getsockname()))
        proved(self.sock, key, role)
        self.sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.05):
            try:
                if self.asked < ASKED:
                    self.asked += self.sock.send(self._question * 20) // len(self._question)
                self.sock.recv(1)
            except BlockingIOError:
                pass
            except OSError:
                return

    @property
    def is_held(self):
        """Whether the other end has its socket open: what it has sent before its end is still to be read here."""
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
        return any((row[1][-5:], row[2][-5:]) == self._ends and row[9] != "0" for row in rows)

    def close(self):
        self._stop.set()
        self._thread.join(10)
        self.sock.close()


def send_s(sender):
    """What an honest send takes."""
    began_s = time.monotonic()
    assert sender.one("honest").code == Code.OK
    return time.monotonic() - began_s


def told_ms(took_s):
    return f"{percentile(took_s, 0.5) * 1e3:.1f}, {percentile(took_s, 0.99) * 1e3:.1f} ms"


SLOW = {"a proxy's link, PULL"}  # its output is small, so it is closed for its rate


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in LINKS])
def test_a_link_that_does_not_read_is_closed_at_a_bound(penstock, shop, name):
    role, question, grown_max = LINKS[name]
    pid = penstock.pids["engine"]
    key = (penstock.data / ("replica.key" if role == REPLICA_ROLE else "cluster.key")).read_bytes()
    with Sender(penstock.producer, shop) as sender:
        alone_s = [send_s(sender) for _ in range(100)]
    memory, beside_s, began_s = Memory(pid), [], time.monotonic()
    with closing(UnreadLink(penstock.engine, role, key, question)) as link, Sender(penstock.producer, shop) as sender:
        while link.is_held or len(beside_s) < 10:
            beside_s.append(send_s(sender))
            assert time.monotonic() < began_s + 90, f"the link is still open, {memory.line()}, asked {link.asked}"
            time.sleep(0.005)
        closed_s = time.monotonic() - began_s
        asked = link.asked
    print(
        f"\n{name}: closed after {closed_s:.1f} s and {asked} questions, {memory.line()}; sends p50, p99: {told_ms(alone_s)} → "
        f"{told_ms(beside_s)} of {len(beside_s)}; load {os.getloadavg()[0]:.1f}"
    )
    assert memory.peak <= grown_max
    until(lambda: memory.kept <= 2 * SLACK_BYTES, "the memory is given back")


@pytest.fixture
def sessions(penstock):
    """Cookies of accounts, as many as may have live maps, and one more."""
    return [each.token for each in signed_in(penstock, MAPS_MAX // MAPS_PER_ACCOUNT_MAX + 1)]


def ask_page(address, path, cookie="", timeout_s=20.0):
    """The status of a page that is read whole."""
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    with closing(connection):
        connection.request("GET", path, headers={"Cookie": f"penstock={cookie}"} if cookie else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_visitors_that_read_streams_and_pages_slowly_take_no_page_from_others(penstock, sessions):
    address, pid = (penstock.facts["console"]["host"], penstock.facts["console"]["port"]), penstock.pids["console"]
    assert ask_page(address, "/map", sessions[-1]) == 200
    memory, slow, took_s, alone_s = Memory(pid), [], [], []
    for _ in range(20):
        began_s = time.monotonic()
        assert ask_page(address, "/map", sessions[-1]) == 200
        alone_s.append(time.monotonic() - began_s)
    with ExitStack() as stack:
        for number in range(VISITORS):
            cookie = sessions[number % (len(sessions) - 1)]
            path = "/map/stream" if number % 2 else ("/static/uplot.min.js", "/map", "/topics")[number // 2 % 3]
            sock = stack.enter_context(closing(socket.socket()))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect(address)
            sock.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\nCookie: penstock={cookie}\r\n\r\n".encode() * 20
            )
            slow.append(sock)
        until(lambda: all(select.select([each], [], [], 0)[0] for each in slow), "all are answered", 60)
        end_s = time.monotonic() + WINDOW_S
        while time.monotonic() < end_s or len(took_s) < 10:
            for each in slow[:: len(slow) // 20]:
                each.recv(1)
            for path in ("/healthz", "/sign-in", "/map"):
                began_s = time.monotonic()
                assert ask_page(address, path, sessions[-1] if path == "/map" else "") == 200
                took_s.append(time.monotonic() - began_s)
        streams = sum(b"text/event-stream" in each.recv(4096) for each in slow)
        print(f"\nconsole, {VISITORS} slow visitors, {streams} streams: {memory.line()}; pages p50, p99: {told_ms(alone_s)} → "
              f"{told_ms(took_s)} of {len(took_s)}; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    assert 0 < streams <= MAPS_MAX
    assert memory.peak <= 2 * SLACK_BYTES
