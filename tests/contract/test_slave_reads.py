"""Reads of clients at a broker that does not lead: both forms of the server, a real log, real sockets."""

import json

import gevent
import pytest

from engine.broker.slave_reads import SlaveReads
from engine.broker.standby import Standby
from engine.client.rpc import RpcClient
from engine.link import layout
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.proof import ADMIN_ROLE
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, offered_to_slaves
from engine.ops.roles import LinkKeys
from engine.server.native import NATIVE, form, reference
from tests.contract.link_engine import ADMIN_SECRET, FORMS, KEY, Engine, turn_until

IDENTITY = {"log_id": "a" * 32, "broker_group": "main", "leads": False}


class Slave(Engine):
    """An engine that stops leading. `readable_to` is the position up to which its master has confirmed the log."""

    def __init__(self, directory, kind: str) -> None:
        super().__init__(directory, kind)
        self.topic_id = self.topic(queues=1)
        self.store(self.topic_id, 5)
        self.rpc.close()
        self.readable_to = self.log.end_position
        self.standby = Standby(
            LinkKeys(KEY, ADMIN_SECRET), self.node.clock, lambda size: bytes(range(size)), lambda: IDENTITY, {},
            lambda: "this broker does not lead", lambda peer: None, lambda: self.readable_to,
        )  # fmt: skip
        self.reads = SlaveReads(self.log, self.node.clock, self.loop.in_loop)
        self.standby.attach(self.log, self.reads)
        self.server.use(self.standby, reference if kind == "twin" else form)
        self.loop.start(self.standby)
        self.rpc = RpcClient(("127.0.0.1", self.server.port), ADMIN_SECRET, role=ADMIN_ROLE)
        self.proxy = RpcClient(("127.0.0.1", self.server.port), KEY, role="consumer_proxy")
        assert self.rpc.wait_connected(5) and self.proxy.wait_connected(5)

    def start_reading(self, offset: int, **options) -> list[tuple[int, bytes]]:
        """Send a READ; its answer comes into the list."""
        question = ReadQuestion([ReadPosition("orders", 0, offset)], **options)
        answers: list[tuple[int, bytes]] = []
        self.proxy.send(layout.READ, question.encode(), lambda *answer: answers.append(answer))
        return answers

    def close(self) -> None:
        self.proxy.close()
        super().close()


@pytest.fixture(params=FORMS)
def slave(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Slave(tmp_path / "engine", request.param)
    yield made
    made.close()


def test_reads_are_served_and_everything_else_is_the_masters(slave):
    answers = slave.start_reading(2)
    turn_until(lambda: answers)
    code, payload = answers[0]
    (piece,) = ReadAnswer.decode(payload).pieces()
    assert (code, piece.first_offset, piece.count, slave.standby.reads_served) == (0, 2, 3, 1)
    for op in (layout.TOPIC, layout.PULL, layout.LEASE, layout.TIMER_LIST):
        assert slave.ask(op)[0] == layout.NOT_MASTER


def test_operators_get_status_topics_and_look_ups_and_no_verb_that_changes_something(slave):
    assert [each["name"] for each in slave.admin("topics")["topics"]] == ["orders"]
    assert slave.admin("status")["log_id"] == slave.log.log_id.hex()
    assert slave.admin("stop")[0] == slave.admin("purge_topic", topic="orders")[0] == layout.NOT_MASTER
    assert slave.proxy.call(layout.ADMIN, b'{"verb": "topics"}', 5)[0] == layout.FORBIDDEN
    code, payload = slave.ask(layout.LOOK_UP_KEY, encode_look_up(0, 10, None, topic="orders", key="k"))
    assert (code, list(decode_look_up_answer(payload)[1])) == (0, [])


def test_an_answer_is_held_until_the_master_has_confirmed_what_it_may_show(slave):
    slave.readable_to -= 8
    answers = slave.start_reading(0)
    turn_until(lambda: slave.reads.held == 1)
    slave.standby.confirm()
    gevent.sleep(0.01)
    assert answers == []
    slave.readable_to = slave.log.end_position
    slave.standby.confirm()
    turn_until(lambda: answers)
    assert answers[0][0] == 0 and slave.reads.held == 0


def test_a_slave_that_does_not_follow_or_is_out_of_the_set_serves_no_read(slave):
    slave.readable_to = 0
    answers = slave.start_reading(0)
    turn_until(lambda: answers)
    assert answers[0][0] == layout.NOT_MASTER
    assert slave.admin("topics")[0] == layout.NOT_MASTER


def test_what_is_held_is_refused_when_the_slave_follows_no_longer(slave):
    slave.readable_to -= 8
    answers = slave.start_reading(0)
    turn_until(lambda: slave.reads.held == 1)
    slave.readable_to = 0
    slave.standby.check_deadlines()
    turn_until(lambda: answers)
    assert answers[0][0] == layout.NOT_MASTER


def test_a_read_waits_for_new_records_and_is_answered_at_its_time_or_when_it_is_withdrawn(slave):
    answers = slave.start_reading(5, wait_ms=50)
    gevent.sleep(0.01)
    assert answers == []
    turn_until(lambda: slave.standby.check_deadlines() or answers)
    assert ReadAnswer.decode(answers[0][1]).reports[0].next_offset == 5
    answers = slave.start_reading(5, wait_ms=20_000)
    slave.proxy.cancel(2)
    turn_until(lambda: answers)


def test_a_link_that_closes_leaves_nothing_behind(slave):
    slave.readable_to -= 8
    slave.start_reading(0)
    turn_until(lambda: slave.reads.held == 1)
    slave.start_reading(5, wait_ms=20_000)
    slave.proxy.close()
    turn_until(lambda: slave.reads.held == 0 and not slave.reads._reads.waiting_queues)


def test_without_a_log_no_read_is_served(slave):
    slave.standby.detach()
    code, sentence = slave.rpc.call(layout.ADMIN, json.dumps({"verb": "status"}).encode(), 5)
    assert (code, sentence) == (layout.NOT_MASTER, b"this broker does not lead")


SEGMENT = 1 << 16


@pytest.fixture
def master(tmp_path):
    """An engine with six sealed segments, whose slaves read what lies two segments behind the end."""
    made = Engine(tmp_path / "engine", "twin", segment_bytes=SEGMENT)
    topic_id = made.topic(queues=1)
    while made.log.end_position < 6 * SEGMENT:
        made.store(topic_id, 1000)
    turn_until(lambda: not made.log.segments.sealing)
    made.node.reads._far_bytes = 2 * SEGMENT
    made.node.reads.has_slave = lambda: True
    yield made
    made.close()


def read_code(master: Engine, offset: int | None, *, offered: bool = True, queue: int = 0) -> int:
    """The code of the answer to a READ that the master may leave to a slave."""
    payload = ReadQuestion([ReadPosition("orders", queue, offset)]).encode()
    return master.ask(layout.READ, offered_to_slaves(payload) if offered else payload)[0]


def test_a_master_leaves_a_read_far_behind_the_end_to_a_slave_if_the_sender_can_ask_one(master):
    end = master.log.bounds(master.log.topic("orders").id, 0)[1]
    assert read_code(master, 0) == layout.AT_SLAVE
    assert (read_code(master, 0, offered=False), read_code(master, end - 1), read_code(master, end)) == (0, 0, 0)
    assert master.node.reads.redirected == 1
    master.node.reads.has_slave = lambda: False
    assert read_code(master, 0) == 0


def test_positions_that_are_wrong_or_ask_for_a_report_only_are_the_masters(master):
    assert (
        read_code(master, None)
        == read_code(master, -1)
        == read_code(master, 1 << 40)
        == read_code(master, 0, queue=9)
        == 0
    )


def test_a_master_without_a_distance_leaves_nothing_to_slaves(master):
    master.node.reads._far_bytes = 0
    assert read_code(master, 0) == 0
