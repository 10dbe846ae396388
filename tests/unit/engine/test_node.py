"""A node on a simulated machine: requests in, frames out, and the times at which it wants to be called."""

import errno
import json

import pytest

from engine.errors import DiskFullError
from engine.link import layout
from engine.link.proof import ADMIN_ROLE
from engine.link.pull import decode_answer, encode_pull
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record
from tests.sim.config import SimulatedConfig
from tests.sim.link import KEY, Link
from tests.sim.world import World


class Owner:
    """A client that keeps what it is sent."""

    name, role = "test", ADMIN_ROLE

    def __init__(self) -> None:
        self.ready = False
        self.closed = 0

    def on_ready(self, link: Link) -> None:
        self.ready = True

    def on_unasked(self, link: Link, op: int, payload: bytes) -> None:
        raise AssertionError("no frame without a request")

    def on_sending(self, link: Link, op: int, code: int, payload: bytes) -> None:
        pass

    def on_closed(self, link: Link) -> None:
        self.closed += 1


class Desk:
    def __init__(self, **settings) -> None:
        self.world = World(1)
        self.engine = self.world.engine("a", node={"tick_ms": 20, "progress_ms": 200}, **settings)
        self.owner = Owner()
        self.link = self.engine.connect(self.owner)
        self.world.run(50)
        assert self.owner.ready
        self.ask(layout.TOPIC, b'{"topics": [{"name": "orders", "queues": 1}]}')

    @property
    def node(self):
        return self.engine.node

    def ask(self, op: int, payload: bytes) -> tuple[int, bytes]:
        answers = self.start(op, payload)
        self.world.run(10)
        return answers[0]

    def start(self, op: int, payload: bytes) -> list[tuple[int, bytes]]:
        answers: list[tuple[int, bytes]] = []
        self.link.ask(op, payload, lambda code, answer: answers.append((code, answer)))
        return answers

    def append(self, count: int = 1) -> None:
        batch = pack_batch(KIND_MESSAGES, 1, 0, [pack_record(b"m\0")] * count)
        payload = layout.APPEND_HEAD.pack(layout.FSYNC, 1) + batch + bytes(-len(batch) % 8)
        assert self.ask(layout.APPEND, payload)[0] == layout.OK


@pytest.fixture
def desk():
    return Desk()


def test_a_waiting_pull_is_answered_at_the_end_of_the_turn_that_appends(desk):
    answers = desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=5_000))
    desk.world.run(100)
    assert answers == [] and desk.node.delivery.parked == 1
    desk.append()
    assert decode_answer(answers[0][1])[1][0].count == 1


def test_a_waiting_pull_is_answered_empty_when_its_time_is_over(desk):
    answers = desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=500))
    desk.world.run(490)
    assert answers == []
    desk.world.run(50)
    assert decode_answer(answers[0][1]) == ([], [])


def test_a_peer_that_does_not_authenticate_is_closed(desk):
    silent = Owner()
    link = Link.__new__(Link)
    link.engine, link.world, link.owner, link.closed = desk.engine, desk.world, silent, False
    link.peer_state = desk.node.on_connected(link)
    desk.engine.links.append(link)
    desk.world.run(9_900)
    assert not link.closed
    desk.world.run(200)
    assert link.closed and link not in desk.node.peers


def test_a_peer_with_another_key_or_another_first_operation_is_refused(desk):
    sent = []

    class Stranger:
        def __init__(self) -> None:
            self.reason, self.closing = "", False
            self.peer_state = desk.node.on_connected(self)

        def send_frame(self, op, request_id, code, parts):
            sent.append((op, code))

        def close(self, reason):
            self.reason = reason

        def close_when_sent(self):
            self.closing = True

    first = Stranger()
    desk.node.on_request(first, layout.PULL, 1, b"")
    assert first.reason == "not authenticated"
    second = Stranger()
    desk.node.on_request(
        second, layout.HELLO, 1, json.dumps({"version": layout.VERSION, "role": "test", "nonce": "00" * 16}).encode()
    )
    desk.node.on_request(second, layout.AUTH, 2, KEY)
    assert second.closing and sent == [(layout.HELLO, layout.OK), (layout.AUTH, layout.UNAUTHENTICATED)]


def test_an_unknown_operation_and_an_internal_error_are_answered(desk, monkeypatch):
    assert desk.ask(77, b"") == (layout.INVALID, b"op 77: unknown to this engine")
    monkeypatch.setattr(desk.node.delivery, "pull", lambda *arguments: 1 / 0)
    code, sentence = desk.ask(layout.PULL, encode_pull("g", [("orders", 1)]))
    assert (code, sentence) == (layout.UNAVAILABLE, b"internal error: the engine's log has the details")


def test_progress_is_written_after_its_pause_and_at_the_end(desk):
    desk.append(3)
    desk.ask(layout.PULL, encode_pull("g", [("orders", 1)]))
    assert desk.node.delivery.has_progress
    desk.world.run(250)
    assert not desk.node.delivery.has_progress
    desk.append()
    desk.ask(layout.PULL, encode_pull("g", [("orders", 1)]))
    desk.engine.stop()
    desk.engine.start()
    assert len(list(desk.node.store.progress(b"gg\0"))) == 1


def test_an_idle_node_looks_at_no_deadlines(desk):
    desk.world.run(20_000)
    assert desk.node._deadlines.due_ms is None
    desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=100))
    desk.world.run(10)
    assert desk.node._deadlines.due_ms is not None
    desk.world.run(1_000)
    assert desk.node._deadlines.due_ms is None


def test_where_only_reads_wait_the_node_looks_when_their_time_is_over(desk):
    read = {"positions": [{"topic": "orders", "queue": 0, "offset": 0}], "wait_ms": 15_000}
    answers = desk.start(layout.READ, json.dumps(read).encode())
    desk.world.run(100)
    assert desk.node._deadlines.due_ms - desk.node.clock.monotonic_ms() > 14_000
    pulled = desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=100))
    desk.world.run(150)
    assert decode_answer(pulled[0][1]) == ([], []), "a pull that comes meanwhile ends at its own time"
    desk.world.run(15_000)
    assert len(answers) == 1 and desk.node._deadlines.due_ms is None


def test_a_stopping_node_answers_what_waits_and_lets_nothing_wait(desk):
    answers = desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=60_000))
    desk.world.run(10)
    desk.node.release_waiting()
    desk.world.run(10)
    assert decode_answer(answers[0][1]) == ([], [])
    code, payload = desk.ask(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=60_000))
    assert (code, decode_answer(payload)) == (layout.OK, ([], []))


def test_a_closed_link_withdraws_what_waits_on_it(desk):
    desk.start(layout.PULL, encode_pull("g", [("orders", 1)], wait_ms=60_000))
    desk.world.run(10)
    desk.link.close("test")
    assert desk.node.delivery.parked == 0 and desk.owner.closed == 0
    desk.world.run(1)
    assert desk.owner.closed == 1


def test_a_stop_writes_the_progress_when_the_disk_has_no_room_to_mark_sent_delayed_messages(desk, monkeypatch):
    desk.node.store.append(pack_batch(KIND_MESSAGES, 1, 0, [pack_record(b"\0")]), 1, 0)
    desk.ask(layout.PULL, encode_pull("g", [("orders", 1)], max_messages=1))
    node = desk.node
    assert node.delivery.has_progress

    def refuse() -> None:
        raise DiskFullError("no room for a control record")

    monkeypatch.setattr(node.timers, "close", refuse)
    desk.engine.stop()
    assert desk.engine.node is None and not node.delivery.has_progress


def test_a_message_whose_log_start_offset_could_not_be_looked_up_comes_without_another_record():
    config = SimulatedConfig()
    config.put("topic", "orders", retention_ms=3_600_000)
    desk = Desk(config=config)
    desk.node.store.append(pack_batch(KIND_MESSAGES, 1, 0, [pack_record(b"\0")]), 1, desk.engine.env.now_ms())
    pull = encode_pull("g", [("orders", 1)], max_messages=1, wait_ms=60_000, invisible_ms=1_000)
    assert decode_answer(desk.ask(layout.PULL, pull)[1])[1]
    again = desk.start(layout.PULL, pull)
    desk.engine.env.fail("store_read", errno.EIO)
    desk.world.run(2_000)  # the lease ends meanwhile
    assert not again
    desk.engine.env.heal()
    desk.world.run(2_000)
    assert decode_answer(again[0][1])[1]
