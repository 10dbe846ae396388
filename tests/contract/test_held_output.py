"""Output of links that waits until what it shows of the log is confirmed: both forms of the server, real sockets."""

import errno
import os
import socket
import time
from dataclasses import replace
from importlib import import_module

import gevent
import pytest

from engine.client.rpc import RpcClient
from engine.link import layout
from engine.link.proof import ADMIN_ROLE, CONTROLLER_ROLE, REPLICA_ROLE, client_proof, engine_proof
from engine.link.pull import decode_answer, encode_pull
from engine.ops.native import OutputHold
from engine.server import server as server_module
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import ADMIN_SECRET, FORMS, KEY, Engine, turn_until

MIB = 1 << 20
SLOW_S = 0.06


class HeldEngine(Engine):
    """An engine whose clients see what a test has confirmed. Its own client `rpc` is from before, so it is not held."""

    def __init__(self, directory, kind: str) -> None:
        super().__init__(directory, kind, segment_bytes=64 << 20)
        self.is_native = kind == "native"
        self.topic_id = self.topic("large", 1)
        self.hold = self.node.output_hold = OutputHold(lambda: self.log.end_position)

    def peer_of(self, link: raw.RawLink):
        """The server's end of a link."""
        name = "{}:{}".format(*link.sock.getsockname())
        return next(each for each in self.node.peers if each.peer == name)

    def held(self, link: raw.RawLink, size: int = 1) -> bool:
        """Whether at least this much of the link's output waits."""
        return self.peer_of(link).backlog >= size and len(self.hold) > 0

    def send_append(self, link: raw.RawLink, request_id: int, durability: int = raw.MEMORY, body: bytes = b"m") -> None:
        """Send an append and wait until its answer is held."""
        before = self.peer_of(link).queued
        link.send(raw.APPEND, raw.append(durability, raw.batch(self.topic_id, 0, [body])), request_id)
        turn_until(lambda: self.peer_of(link).queued > before and len(self.hold) > 0)

    def confirm(self) -> None:
        self.hold.confirm(self.log.end_position)

    def is_silent(self, link: raw.RawLink) -> bool:
        """Whether nothing has come over the link, once the engine has answered another one."""
        self.store(self.topic_id, 1)
        try:
            os.read(link.sock.fileno(), 1)
        except OSError as error:
            return error.errno == errno.EAGAIN
        return False


@pytest.fixture(params=FORMS)
def engine(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = HeldEngine(tmp_path / "engine", request.param)
    yield made
    made.close()


def next_id(link: raw.RawLink) -> int:
    """Request id of the next answer."""
    with gevent.Timeout(10):
        return link.receive()[2]


@pytest.mark.parametrize("durability", [raw.MEMORY, raw.FSYNC])
def test_an_answer_leaves_once_the_log_is_confirmed_up_to_where_it_ended(engine, durability):
    link = engine.raw()
    engine.send_append(link, 7, durability)
    end = engine.log.end_position
    assert engine.is_silent(link)
    engine.hold.confirm(end - 1)
    assert engine.is_silent(link)
    engine.hold.confirm(end)
    assert next_id(link) == 7


def test_answers_leave_in_order_and_only_those_that_are_confirmed(engine):
    link, ends = engine.raw(), []
    for number in range(1, 6):
        engine.send_append(link, number)
        ends.append(engine.log.end_position)
        turn_until(lambda: len(engine.hold) == len(ends))
    engine.hold.confirm(ends[1])
    assert [next_id(link), next_id(link)] == [1, 2]
    assert engine.is_silent(link)
    engine.confirm()
    assert [next_id(link) for _ in range(3)] == [3, 4, 5]
    assert engine.peer_of(link).backlog == 0


def test_a_release_of_more_than_there_is_frees_nothing_that_comes_later(engine):
    link = engine.raw()
    engine.send_append(link, 1)
    engine.peer_of(link).release(1 << 40)
    assert next_id(link) == 1
    engine.send_append(link, 2)
    assert engine.is_silent(link)


def test_nothing_waits_while_all_is_confirmed(engine):
    engine.confirm()
    link = engine.raw()
    assert decode_answer(link.ask(layout.PULL, encode_pull("g", [("large", 1)]))[1]) == ([], [])
    assert len(engine.hold) == 0


def test_answers_to_reads_pulls_refusals_and_frames_without_a_request_wait_too(engine):
    engine.store(engine.topic_id, 1)
    link = engine.raw()
    link.send(layout.PULL, encode_pull("g", [("large", 1)]), 1)
    turn_until(lambda: engine.held(link))
    before = engine.peer_of(link).queued
    link.send(layout.TOPIC, b"{}", 2)
    turn_until(lambda: engine.peer_of(link).queued > before)
    engine.peer_of(link).send_frame(layout.FORWARD, layout.UNASKED, 0, [b"reply"])
    assert engine.is_silent(link)
    engine.confirm()
    assert [next_id(link) for _ in range(3)] == [1, 2, layout.UNASKED]


@pytest.mark.parametrize("role", [REPLICA_ROLE, CONTROLLER_ROLE])
def test_links_of_slaves_and_controllers_are_not_held(engine, role):
    link = engine.raw(key=None)
    greeting = link.greet(role)
    assert link.ask(layout.AUTH, client_proof(KEY, greeting)) == (0, engine_proof(KEY, greeting))
    engine.store(engine.topic_id, 1)
    assert link.ask(99)[0] == layout.INVALID and len(engine.hold) == 0


def test_an_operator_waits_as_a_client_does_but_a_greeting_does_not(engine):
    engine.store(engine.topic_id, 1)
    rpc = RpcClient(("127.0.0.1", engine.server.port), ADMIN_SECRET, role=ADMIN_ROLE)
    assert rpc.wait_connected(5)
    answers = []
    rpc.send(layout.ADMIN, b'{"verb":"status"}', lambda code, payload: answers.append(code))
    turn_until(lambda: len(engine.hold) == 1)
    assert not answers
    engine.confirm()
    turn_until(lambda: answers)
    rpc.close()


def test_a_greeting_names_no_position_above_the_confirmed_one(engine):
    engine.store(engine.topic_id, 1, durability=raw.FSYNC)
    engine.hold.confirm(engine.log.end_position - 8)
    engine.rpc.reconnect("the test wants a new greeting")
    turn_until(lambda: not engine.rpc.connected)
    assert engine.rpc.wait_connected(5)
    shown = engine.hold.confirmed
    assert (engine.rpc.hello.durable_position, engine.rpc.hello.end_position) == (shown, shown)


def test_messages_of_an_answer_that_was_held_when_its_link_broke_were_no_attempt(engine):
    engine.store(engine.topic_id, 3)
    link = engine.raw()
    link.send(layout.PULL, encode_pull("g", [("large", 1)]))
    turn_until(lambda: engine.held(link))
    link.close()
    turn_until(lambda: len(engine.node.peers) == 1)
    assert engine.delivery.counts.released == 3
    _, (piece,) = engine.pull(topics=(("large", 1),))
    assert (piece.first_offset, piece.count, piece.attempt) == (0, 3, 1)


def test_a_connection_that_is_to_close_waits_for_its_held_answers(engine):
    link = engine.raw()
    engine.send_append(link, 5)
    engine.peer_of(link).close_when_sent()
    assert engine.is_silent(link)
    engine.confirm()
    assert next_id(link) == 5
    assert link.is_closed()


def test_a_drain_waits_for_held_answers(engine):
    engine.raw().send(layout.TOPIC, b"{}")
    link = engine.raw()
    engine.send_append(link, 5)
    engine.server.stop_accepting()
    draining = gevent.spawn(engine.server.drain, 10)
    turn_until(lambda: engine.rpc.connected is False)
    assert not draining.ready() and len(engine.node.peers) >= 1
    engine.confirm()
    assert next_id(link) == 5
    assert link.is_closed()
    draining.join(5)
    assert draining.ready() and not engine.server.connections


def test_pulls_wait_for_room_behind_held_output_and_go_on(engine):
    for _ in range(6):
        engine.ask(layout.APPEND, raw.append(raw.MEMORY, raw.batch(engine.topic_id, 0, [bytes(MIB)])))
    link = engine.raw()
    for number in range(6):
        options = {"max_messages": 1, "max_bytes": 12 * MIB, "wait_ms": 20_000}
        link.send(layout.PULL, encode_pull("g", [("large", 1)], **options), request_id=number + 1)
    turn_until(lambda: engine.peer_of(link).peer_state.window.is_full)
    turn_until(lambda: engine.delivery.parked)
    assert engine.delivery.counts.deliveries < 6, "the output is bounded"
    found = []
    while len(found) < 6:
        engine.confirm()
        found.append(next_id(link))
    assert sorted(found) == [1, 2, 3, 4, 5, 6]


@pytest.fixture(params=FORMS)
def impatient(request, tmp_path, monkeypatch):
    """An engine that closes readers that are slow for SLOW_S."""
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    monkeypatch.setattr(server_module, "LIMITS", replace(server_module.LIMITS, write_deadline_s=SLOW_S))
    made = HeldEngine(tmp_path / "engine", request.param)
    yield made
    made.close()


def let_deadlines_pass(engine) -> None:
    """Turn for a multiple of the time after which a slow reader is closed, and check the deadlines all the time."""
    until_s = time.monotonic() + 4 * SLOW_S
    while time.monotonic() < until_s:
        if engine.is_native:
            import_module("common.net._reactor").reactor()._sweep()
        gevent.sleep(0.001)


def answer_of_9_mib(engine, link: raw.RawLink) -> None:
    """Have the link's output hold more than its socket takes."""
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    engine.store(engine.topic_id, 1)
    engine.ask(layout.APPEND, raw.append(raw.MEMORY, raw.batch(engine.topic_id, 0, [bytes(9 * MIB)])))
    options = {"max_messages": 2, "max_bytes": 12 * MIB}
    link.send(layout.PULL, encode_pull("g", [("large", 1)], **options))
    turn_until(lambda: engine.held(link, 9 * MIB))


def test_a_reader_that_is_slow_is_closed_once_its_output_is_released_and_not_before(impatient):
    engine, link = impatient, impatient.raw()
    answer_of_9_mib(engine, link)
    peer = engine.peer_of(link)
    let_deadlines_pass(engine)
    assert not peer.closed, "held output makes no reader slow"
    engine.confirm()
    turn_until(lambda: peer.closed)
    assert peer.backlog > 0


def test_a_reader_that_has_read_all_that_may_leave_is_not_slow_while_the_rest_is_held(impatient):
    engine, link = impatient, impatient.raw()
    answer_of_9_mib(engine, link)
    end = engine.log.end_position
    engine.store(engine.topic_id, 1)
    engine.hold.confirm(end)
    peer = engine.peer_of(link)
    before = peer.queued
    link.send(layout.TOPIC, b"{}", 2)  # answered while the socket takes no more of the first answer
    turn_until(lambda: peer.queued > before)
    assert next_id(link) == 1
    turn_until(lambda: len(engine.hold) == 1)
    let_deadlines_pass(engine)
    assert not peer.closed and engine.is_silent(link)
    engine.confirm()
    assert next_id(link) == 2


def test_two_hundred_links_are_held_and_released_together(engine):
    links = [engine.raw() for _ in range(200)]
    for link in links:
        link.send(raw.APPEND, raw.append(raw.MEMORY, raw.batch(engine.topic_id, 0, [b"m"])), 3)
    turn_until(lambda: len(engine.hold) == 200)
    for link in links[:50]:
        link.close()
    turn_until(lambda: len(engine.node.peers) == 151)
    assert engine.hold.links == 150, "closed links are forgotten"
    assert all(engine.is_silent(link) for link in links[50:53])
    engine.confirm()
    assert [next_id(link) for link in links[50:]] == [3] * 150
    assert len(engine.hold) == 0 and not any(engine.peer_of(link).backlog for link in links[50:])
