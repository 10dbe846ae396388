"""Listeners and connections, native and pure: one behaviour, shown over real sockets."""

import fcntl
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time

import gevent
import gevent.event
import pytest
from thriftpy2.thrift import TApplicationException

import common.net as net
from common import contract
from common.net import Limits, listen
from common.net import connection as connection_pure
from common.net.prefix import credential_at_start
from common.net.refusal import REFUSALS
from common.net.server import Server
from common.net.tls import server_context
from tests.services import require

VERSION = b"\x80\x01\x00\x01"
LIMITS = Limits(read_deadline_s=0.5, greeting_deadline_s=0.5, idle_deadline_s=1.0, connections_max=50)


def call(body: bytes = b"", name: bytes = b"send", seqid: int = 7) -> bytes:
    """A strict binary CALL whose argument struct holds one binary field."""
    field = b"\x0b\x00\x05" + struct.pack(">i", len(body)) + body
    return VERSION + struct.pack(">i", len(name)) + name + struct.pack(">i", seqid) + field + b"\x00"


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


@pytest.fixture(params=["native", "pure"])
def serve(request):
    servers = []
    if request.param == "native" and not net.NATIVE:
        pytest.skip("no native connections in this run")

    def start(on_call, limits=LIMITS, tls=None, prefix_check=None):
        if request.param == "native":
            factory = net._call_connections(limits, on_call, prefix_check)
        else:

            def factory(sock, peer, ctx):
                return connection_pure.CallConnection(sock, limits, peer, ctx, on_call, prefix_check)

        server = Server([(listen("127.0.0.1", 0), tls)], limits, factory)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def client(server) -> socket.socket:
    from gevent import socket as cooperative

    sock = cooperative.create_connection(("127.0.0.1", server.ports[0]))
    sock.settimeout(5)
    return sock


def echo(connection, frame):
    connection.reply(frame)


def trusting(connection, frame):
    connection.trust()
    connection.reply(frame)


def read_exactly(sock, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        assert chunk, f"closed after {len(data)} of {size} bytes"
        data += chunk
    return data


def pending(sock) -> int:
    """Bytes that have arrived and were not read."""
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def is_closed(sock, within_s: float = 2.0) -> bool:
    sock.settimeout(within_s)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_framed_and_buffered_calls_are_answered_in_their_own_framing_on_one_port(serve):
    server = serve(echo)
    for wrap in (framed, bytes):
        sock = client(server)
        for _ in range(3):
            sock.sendall(wrap(call(b"x" * 100)))
            assert read_exactly(sock, len(wrap(call(b"x" * 100)))) == wrap(call(b"x" * 100))


@pytest.mark.parametrize("wrap", [framed, bytes])
def test_a_call_cut_into_single_bytes_is_put_together_again(serve, wrap):
    sock = client(serve(echo))
    data = wrap(call(b"abc"))
    for i in range(len(data)):
        sock.sendall(data[i : i + 1])
        gevent.sleep(0)
    assert read_exactly(sock, len(data)) == data


@pytest.mark.parametrize("wrap", [framed, bytes])
def test_calls_sent_ahead_are_answered_in_order_one_at_a_time(serve, wrap):
    waiting = []
    sock = client(serve(lambda connection, frame: waiting.append((connection, frame))))
    calls = [call(bytes([65 + i])) for i in range(5)]
    sock.sendall(b"".join(map(wrap, calls)))
    for expected in calls:
        with gevent.Timeout(2):
            while not waiting:
                gevent.sleep(0.001)
        assert len(waiting) == 1
        connection, frame = waiting.pop()
        assert frame == expected
        connection.reply(frame)
    assert read_exactly(sock, sum(len(wrap(c)) for c in calls)) == b"".join(map(wrap, calls))


@pytest.mark.parametrize(
    "foreign",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x\r\n", b"\x82\x21\x01\x04send", b'[1,"send",1,0,{}]',
     b"\x00\x00\x00\x10\x00\x00\x00\x04send\x01", b"\x00\x00\x00\x20\x82\x21", b"\x00\x00\x00\x00\x80", b"\xff\xff\xff\xff\x80",
     b"\x7f\xff\xff\xff\x80"],
)  # fmt: skip
def test_what_is_no_strict_binary_call_is_closed_within_a_tenth_of_a_second(serve, foreign):
    sock = client(serve(echo))
    sock.sendall(foreign)
    assert is_closed(sock, 0.1)


def test_a_frame_that_never_completes_is_closed_by_the_read_deadline(serve):
    sock = client(serve(echo))
    sock.sendall(framed(call(b"x" * 50))[:-1])
    assert is_closed(sock, 3)


def test_a_silent_client_is_closed_by_the_greeting_deadline(serve):
    assert is_closed(client(serve(echo)), 3)


def test_a_strangers_long_frame_is_let_in_only_when_its_start_carries_a_good_credential(serve):
    body = call(b"z" * 200_000)
    for verdict in (True, False):
        asked = []
        sock = client(serve(echo, prefix_check=lambda c, prefix, v=verdict, a=asked: a.append(len(prefix)) or v))
        try:
            sock.sendall(framed(body))
        except ConnectionError:
            assert not verdict
        if verdict:
            assert read_exactly(sock, len(framed(body))) == framed(body)
        else:
            assert "needs a valid credential" in refusal(sock)
            assert is_closed(sock)
        assert asked == [65_536]


def refusal(sock, wrap=framed) -> str:
    """The sentence of the TApplicationException that comes next."""
    if wrap is framed:
        (size,) = struct.unpack(">I", read_exactly(sock, 4))
        answer = read_exactly(sock, size)
    else:
        answer = sock.recv(65_536)
    with pytest.raises(TApplicationException) as raised:
        contract.decode_reply(answer, 7)
    return raised.value.message


@pytest.mark.parametrize("wrap", [framed, bytes])
@pytest.mark.parametrize("size", [16_384_001, 17_000_000, 40_000_000])
def test_a_call_above_the_limit_is_answered_with_the_limit_although_its_client_sends_on(serve, wrap, size):
    before = REFUSALS.count
    sock = client(serve(echo, Limits(read_deadline_s=5), prefix_check=lambda connection, prefix: True))
    sock.sendall(wrap(call(b"y" * size)))
    assert "at most 16384000 bytes are allowed" in refusal(sock, wrap)
    assert REFUSALS.count == before + 1
    assert sock.recv(1) == b"", "the connection goes on in the middle of a call"


def test_a_client_that_was_refused_and_stays_is_closed_by_the_read_deadline(serve):
    sock = client(serve(echo))
    sock.sendall(struct.pack(">I", 20_000_000) + call())
    assert "at most" in refusal(sock)
    with gevent.Timeout(5), pytest.raises(ConnectionError):
        while True:
            sock.sendall(bytes(1000))
            gevent.sleep(0.02)


def test_a_trusted_connection_may_send_up_to_the_frame_limit_and_no_more(serve):
    def trusting(connection, frame):
        connection.trust()
        connection.reply(frame[:8])

    sock = client(serve(trusting))
    sock.sendall(framed(call()))
    assert read_exactly(sock, 12)
    sock.sendall(framed(call(b"y" * 3_000_000)))
    assert read_exactly(sock, 12)
    sock.sendall(struct.pack(">I", 16_384_001) + VERSION)
    assert is_closed(sock)


def test_connections_over_the_cap_are_closed_and_the_others_go_on(serve):
    server = serve(trusting, Limits(connections_max=2))
    kept = [client(server) for _ in range(2)]
    for sock in kept:
        sock.sendall(framed(call()))
        read_exactly(sock, 4 + len(call()))
    assert is_closed(client(server))
    kept[0].sendall(framed(call(b"still")))
    assert read_exactly(kept[0], 4 + len(call(b"still")))


def test_closing_tells_the_owner_once(serve):
    seen = []
    sock = client(serve(lambda c, f: seen.append(c)))
    sock.sendall(framed(call()))
    with gevent.Timeout(2):
        while not seen:
            gevent.sleep(0.001)
    closed = []
    seen[0].on_close = closed.append
    sock.close()
    with gevent.Timeout(3):
        while not closed:
            gevent.sleep(0.001)
    seen[0].reply(b"nobody reads this")
    assert len(closed) == 1 and seen[0].closed


def test_a_large_answer_reaches_a_slow_reader_whole(serve):
    answer = bytes(range(256)) * 40_000
    sock = client(serve(lambda c, f: c.reply(answer)))
    sock.sendall(framed(call()))
    gevent.sleep(0.05)
    assert read_exactly(sock, 4 + len(answer))[4:] == answer


@pytest.mark.parametrize("serve", ["native"], indirect=True)
def test_a_long_answer_leaves_in_pieces_with_a_look_at_the_other_clients_between_them(serve):
    sent = []

    def answer(connection, frame):
        connection.reply(bytes(4 << 20))
        gevent.get_hub().loop.run_callback(lambda: sent.append(pending(sock)))

    sock = client(serve(answer))
    sock.sendall(framed(call()))
    assert len(read_exactly(sock, 4 + (4 << 20))) == 4 + (4 << 20)
    assert 0 < sent[0] <= 131_072


@pytest.mark.parametrize("answer_bytes, is_unsent", [(100, False), (16 << 20, True)])
def test_a_connection_knows_at_its_end_whether_its_last_answer_has_left(serve, answer_bytes, is_unsent):
    ends, replied = [], gevent.event.Event()

    def on_call(connection, frame):
        connection.on_close = lambda closed: ends.append(closed.unsent)
        connection.reply(bytes(answer_bytes))
        replied.set()

    sock = client(serve(on_call))
    sock.sendall(framed(call()))
    assert replied.wait(5)
    read_exactly(sock, 50)
    sock.close()
    with gevent.Timeout(5):
        while not ends:
            gevent.sleep(0.01)
    assert ends == [is_unsent]


def test_calls_of_a_client_that_does_not_read_its_answers_wait_until_it_does(serve):
    answer, called = bytes(2_000_000), []
    server = serve(lambda c, f: (called.append(f), gevent.get_hub().loop.run_callback(c.reply, answer)), Limits())
    sock = client(server)
    sock.sendall(framed(call()) * 100)
    with gevent.Timeout(3):
        while not called:
            gevent.sleep(0.001)
    gevent.sleep(0.2)
    assert len(called) < 10, "answers pile up in memory"
    for _ in range(100):
        assert len(read_exactly(sock, 4 + len(answer))) == 4 + len(answer)
    assert len(called) == 100


def test_a_reader_that_takes_a_byte_now_and_then_is_disconnected_and_one_at_the_minimum_rate_is_not(serve):
    limits = Limits(write_deadline_s=0.6, write_rate_min=100_000, idle_deadline_s=60)
    answer = bytes(12 << 20)
    server = serve(lambda connection, frame: connection.reply(answer), limits)
    slow, steady = client(server), client(server)
    for sock in (slow, steady):
        sock.sendall(framed(call()))
    gone, taken = False, 0
    with gevent.Timeout(10):
        while not gone:
            taken += len(steady.recv(65_536))
            slow.recv(1)
            gevent.sleep(0.02)
            gone = len(server.connections) == 1
    while taken < 4 + len(answer):
        taken += len(steady.recv(1 << 20))
    assert taken == 4 + len(answer)


def test_slow_readers_go_first_when_answers_take_much_memory(serve):
    limits = Limits(write_deadline_s=3.0, write_rate_min=100_000, idle_deadline_s=60, output_bytes_max=32_768_000)
    server = serve(lambda connection, frame: connection.reply(bytes(12 << 20)), limits)
    slow = [client(server) for _ in range(3)]
    for sock in slow:
        sock.sendall(framed(call()))
    started_s = time.monotonic()
    with gevent.Timeout(10):
        while len(server.connections) > 1:
            for sock in slow:
                sock.recv(3000)
            gevent.sleep(0.1)
    assert time.monotonic() - started_s < 2.5


def bytes_held() -> int:
    """Input of all connections of this process."""
    from common.net._reactor import reactor

    return reactor().in_bytes


@pytest.fixture
def certificate(tmp_path):
    require(shutil.which("openssl"), "the openssl command")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)  # fmt: skip
    return str(cert), str(key)


class TlsClient:
    """A client over TLS in memory, so that it can send without reading and the loop of this process turns meanwhile."""

    def __init__(self, server, cert: str) -> None:
        self.sock = client(server)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        trust = ssl.create_default_context(cafile=cert)
        self._tls = trust.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._turn(self._tls.do_handshake)

    def _turn(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.flush()
                self._in.write(self.sock.recv(65_536))

    def flush(self):
        while self._out.pending:
            self.sock.sendall(self._out.read())

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self.flush()

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._turn(lambda: self._tls.read(65_536))
        return data


@pytest.mark.parametrize("serve", ["native"], indirect=True)
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("over_tls", [True, False])
def test_what_a_client_sends_while_its_call_is_in_progress_stays_in_the_kernel(
    serve, certificate, is_trusted, over_tls
):
    waiting = []

    def later(connection, frame):
        waiting.append(connection)
        if is_trusted:
            connection.trust()

    before = bytes_held()
    server = serve(later, Limits(), server_context(*certificate) if over_tls else None)
    sock = TlsClient(server, certificate[0]) if over_tls else client(server)
    send = sock.send if over_tls else sock.sendall
    send(framed(call()))
    most, calls = 0, framed(call(b"z" * 1000))
    with gevent.Timeout(1, False):
        while True:
            send(calls * 100)
            gevent.sleep(0)
            most = max(most, bytes_held() - before)
    assert most < (200_000 if is_trusted else 25_000)
    assert len(waiting) == 1
    waiting.pop().reply(call())
    with gevent.Timeout(3):
        while not waiting:
            gevent.sleep(0.001)  # reading goes on after the answer


def test_a_large_answer_over_tls_arrives_whole_while_its_reader_pauses(serve, certificate):
    answer = bytes(range(256)) * 60_000
    sock = TlsClient(
        serve(lambda connection, frame: connection.reply(answer), Limits(), server_context(*certificate)),
        certificate[0],
    )
    sock.send(framed(call()))
    gevent.sleep(0.05)
    assert sock.read(4 + len(answer))[4:] == answer


@pytest.mark.parametrize("serve", ["native"], indirect=True)
def test_many_large_answers_share_a_turn_so_that_a_small_one_is_not_late(serve):
    server = serve(lambda connection, frame: connection.reply(bytes(4 << 20) if len(frame) > 100 else frame), Limits())
    large = [client(server) for _ in range(100)]
    for sock in large:
        sock.sendall(framed(call(b"x" * 100)))
    gevent.sleep(0.1)
    for sock in large:
        sock.recv(100_000)
    small, started_s = client(server), time.monotonic()
    small.sendall(framed(call()))
    read_exactly(small, len(framed(call())))
    assert time.monotonic() - started_s < 0.1


def test_tls_clients_are_served_and_a_plain_one_on_that_port_is_closed(serve, tmp_path):
    require(shutil.which("openssl"), "the openssl command")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)  # fmt: skip
    server = serve(echo, tls=server_context(str(cert), str(key)))
    answers = []

    def talk():
        trust = ssl.create_default_context(cafile=cert)
        with (
            socket.create_connection(("localhost", server.ports[0])) as raw,
            trust.wrap_socket(raw, server_hostname="localhost") as sock,
        ):
            for size in (1, 60_000):
                sock.sendall(framed(call(b"t" * size)))
                answers.append(read_exactly(sock, len(framed(call(b"t" * size)))) == framed(call(b"t" * size)))

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    with gevent.Timeout(5):
        while thread.is_alive():
            gevent.sleep(0.005)
    assert answers == [True, True]
    plain = client(server)
    plain.sendall(framed(call()))
    assert plain.recv(100)[:1] in (b"", b"\x15")


def test_the_credential_at_the_start_of_a_call_is_found_and_nothing_else_is():
    credential = b"\x0b\x00\x01\x00\x00\x00\x01a\x00"
    head = VERSION + b"\x00\x00\x00\x04send" + b"\x00\x00\x00\x01"
    assert credential_at_start(head + b"\x0c\x00\x01\x0c\x00\x01" + credential + b"\x0f\x00\x02") == credential
    assert credential_at_start(head + b"\x0c\x00\x01\x0f\x00\x02") is None
    assert credential_at_start(head + b"\x0c\x00\x01\x0c\x00\x01" + credential[:-3]) is None
