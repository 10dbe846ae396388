"""send to a broker group of two brokers while one master is replaced by the other. Hot path and reference."""

import re
import time
from collections import Counter

import gevent
import pytest

import producer_proxy.proxy as proxy_module
from common.breaker import State
from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message
from common.net import listen
from engine.client import master_append, master_client
from engine.client.brokers import Brokers
from engine.link import layout
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.proxy import ProducerProxy
from tests.services.fake_broker import KEY, wait_until
from tests.services.fake_member import FakeMember
from tests.unit.producer_proxy.send.desk import SECRET, Client, codes, credential, request

DURABILITY = {"orders": "memory", "pay": "fsync"}
BUFFERED = "safe"


class Desk:
    """A proxy, and a group of two brokers of which the first one leads."""

    def __init__(self, hot: bool, monkeypatch) -> None:
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.first, self.second = FakeMember("a", leads=True), FakeMember("b")
        self.store = MemoryConfigStore()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        self.store.put("application", "shop", app.to_value(), 0)
        for name, durability in DURABILITY.items():
            self.store.put("topic", name, TopicDefinition(name, 4, durability).to_value(), 0)
        self.store.put("topic", BUFFERED, TopicDefinition(BUFFERED, 4, "memory", buffer="disk").to_value(), 0)
        self.store_of_buffer = BufferMemoryStore(RoomLimits(), SystemClock().now_ms)
        self.store_of_buffer.name = "disk"
        address = ",".join("{}:{}".format(*each.address) for each in (self.first, self.second))
        self.store.put("broker_group", "east", {"address": address}, 0)
        self.view = ConfigView(self.store)
        self.brokers = Brokers(KEY, role="producer_proxy")
        buffering = Buffering({"disk": self.store_of_buffer})
        self.proxy = ProducerProxy([(listen("127.0.0.1", 0), None)], self.view, self.brokers, buffering=buffering)
        wait_until(lambda: self.group.append.connected and self.group.breaker.state is State.CLOSED)
        self.fixed = credential()

    @property
    def group(self):
        return self.brokers.listed[0]

    def send(self, *messages: Message, **fields):
        client = Client(self.proxy.server.ports[0])
        return client.call(request(*messages, credential=self.fixed, **fields))

    def sent(self, *messages: Message, **fields) -> gevent.Greenlet:
        """A call under way."""
        return gevent.spawn(self.send, *messages, **fields)

    def bodies(self, broker: FakeMember) -> list[bytes]:
        """All that a broker has, queue by queue."""
        return [body_of(encoded) for _, run in sorted(broker.stored.items()) for _, encoded in run]

    def switch(self, has_all: bool = True) -> None:
        """Kill the first broker; the second one leads."""
        if has_all:
            self.second.copy(self.first)
        self.first.leads = False
        self.first.stop()
        self.second.lead(2)

    def close(self) -> None:
        for each in (self.first, self.second):
            each.go.set()
            each.answers.set()
        self.proxy.stop()
        self.first.stop()
        self.second.stop()
        self.view.close()


@pytest.fixture(params=["hot", "slow"])
def desk(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Desk(request.param == "hot", monkeypatch)
    yield made
    made.close()


def message(number: int, topic: str = "orders", key: str | None = "k") -> Message:
    return Message(topic=topic, body=b"%06d" % number, key=key)


def body(number: int) -> bytes:
    return b"%06d" % number


def body_of(encoded: bytes) -> bytes:
    """The body in a message's Thrift binary."""
    return re.findall(rb"\0{3}\x06(\d{6})", encoded)[0]


@pytest.mark.parametrize("topic", DURABILITY)
def test_what_is_stored_and_not_answered_is_answered_by_the_next_master_and_stored_once(desk, topic):
    assert codes(desk.send(message(0, topic))) == [Code.OK]
    desk.first.answers.clear()
    call = desk.sent(message(1, topic))
    wait_until(lambda: len(desk.first.log) == 2)
    desk.switch()
    (result,) = call.get(timeout=5)
    assert (result.code, result.offset) == (Code.OK, 1)
    assert desk.bodies(desk.second) == [body(0), body(1)]
    assert desk.second.resent == [(1, 1)], "from the end that the last answer before it told"


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("topic", ["orders", "safe"])
def test_a_group_among_several_waits_for_the_switch_of_a_master_that_hangs(desk, topic, key):
    """Its successor leads 1.2 s after the hang: later than a group of one broker is given."""
    assert codes(desk.send(message(0, topic, key))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.answers.clear()
    began = time.monotonic()
    calls = [desk.sent(message(1, topic, key))]
    wait_until(lambda: len(desk.first.log) == 2)
    wait_until(lambda: time.monotonic() > began + 1.1, 3)
    calls.append(desk.sent(message(2, topic, key)))
    wait_until(lambda: waiting(desk) == 2)
    desk.second.lead(2)
    assert [codes(call.get(timeout=5)) for call in calls] == [[Code.OK]] * 2
    assert sorted(desk.bodies(desk.second)) == [body(0), body(1), body(2)]
    assert desk.store_of_buffer.room.entries == 0


@pytest.mark.parametrize("topic", DURABILITY)
def test_what_only_the_lost_master_had_is_stored_by_the_next_one(desk, topic):
    assert codes(desk.send(message(0, topic))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.answers.clear()
    call = desk.sent(message(1, topic))
    wait_until(lambda: len(desk.first.log) == 2)
    desk.switch(has_all=False)
    assert codes(call.get(timeout=5)) == [Code.OK]
    assert desk.bodies(desk.second) == [body(0), body(1)]


@pytest.mark.parametrize("topic", DURABILITY)
def test_a_key_keeps_its_order_over_a_switch(desk, topic):
    assert codes(desk.send(message(0, topic))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.answers.clear()
    calls = []
    for number in range(1, 7):
        calls.append(desk.sent(message(number, topic)))
        wait_until(lambda number=number: waiting(desk) == number)
    in_flight = len(desk.first.log)
    assert 2 <= in_flight < 7, "some fly and some wait"
    desk.second.answers.clear()
    desk.switch(has_all=False)
    for number in range(7, 9):
        calls.append(desk.sent(message(number, topic)))
        wait_until(lambda number=number: waiting(desk) == number)
    wait_until(lambda: desk.second.resent)
    wait_until(lambda: desk.group.breaker.state is State.OPEN)  # as it does not answer; unsent messages are moved
    assert [op for op, _ in desk.second.asked if op == layout.APPEND] == [], "what is sent again comes first"
    desk.second.answers.set()
    assert [codes(call.get(timeout=5)) for call in calls] == [[Code.OK]] * 8
    assert desk.bodies(desk.second) == [body(number) for number in range(9)]


def test_no_append_is_sent_before_what_is_sent_again_has_its_answer(desk):
    """The engine serves APPENDs of a turn before its RESENDs."""
    lane = desk.group.append.lanes[1]
    assert codes(desk.send(message(0, "pay"))) == [Code.OK]
    desk.first.answers.clear()
    first = desk.sent(message(1, "pay"))
    wait_until(lambda: len(desk.first.log) == 2)
    desk.second.copy(desk.first)
    desk.first.stop()
    wait_until(lambda: lane.link is None)
    second = desk.sent(message(2, "pay"), timeout_ms=3000)
    wait_until(lambda: waiting(desk) == 2)
    desk.second.answers.clear()
    desk.second.lead(2)
    wait_until(lambda: desk.second.resent)
    gevent.sleep(0.05)
    assert lane.appends == 2, "as to the master before"
    desk.second.answers.set()
    assert codes(first.get(timeout=5)) + codes(second.get(timeout=5)) == [Code.OK] * 2
    assert lane.appends == 3


def waiting(desk: Desk) -> int:
    return sum(lane.waiting for lane in desk.group.append.lanes)


def test_no_call_fails_and_nothing_is_lost_or_doubled_while_a_busy_master_is_replaced(desk):
    results: list = []

    def sender(number: int) -> None:
        for each in range(40):
            results.extend(desk.send(message(1000 * number + each, "orders", str(number))))

    senders = [gevent.spawn(sender, number) for number in range(5)]
    wait_until(lambda: len(results) > 40)
    desk.switch()
    gevent.joinall(senders, timeout=20, raise_error=True)
    assert {result.code for result in results} == {Code.OK}
    stored = Counter(desk.bodies(desk.second))
    assert len(stored) == 200 and set(stored.values()) == {1}
    for run in desk.second.stored.values():
        for number in range(5):
            own = [each for _, encoded in run if int(each := body_of(encoded)) // 1000 == number]
            assert own == sorted(own)
    assert desk.group.breaker.opened == 0


def test_new_messages_wait_while_no_broker_leads(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.leads = False
    desk.first.break_links()
    wait_until(lambda: desk.group.append.lanes[0].link is None)
    began = time.monotonic()
    calls = [desk.sent(message(number)) for number in range(1, 4)]
    gevent.sleep(0.3)
    assert not any(call.ready() for call in calls) and desk.brokers.health() is True
    desk.second.lead(2)
    assert [codes(call.get(timeout=5)) for call in calls] == [[Code.OK]] * 3
    assert time.monotonic() - began < 1.4
    assert (desk.group.breaker.opened, desk.group.breaker.state) == (0, State.CLOSED)
    assert desk.second.questions == 0, "these have ids of the master before, which hold"
    assert codes(desk.send(message(4))) == [Code.OK]
    assert desk.second.questions == 1, "later messages do not rely on them"


def test_after_a_time_without_a_master_sends_are_refused_and_later_they_work_again(desk, monkeypatch):
    monkeypatch.setattr(master_client, "SEEK_S", 0.2)
    monkeypatch.setattr(master_append, "SEEK_S", 0.2)
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.first.answers.clear()
    flying = desk.sent(message(1), timeout_ms=3000)
    wait_until(lambda: len(desk.first.log) == 2)
    desk.second.copy(desk.first)
    desk.first.stop()
    (result,) = desk.send(message(2), timeout_ms=2000)
    assert result.code == Code.UNAVAILABLE
    assert desk.group.breaker.state is State.OPEN
    assert not flying.ready(), "it may be stored: its deadline has not passed"
    desk.second.lead(2)
    assert codes(flying.get(timeout=5)) == [Code.OK]
    wait_until(lambda: codes(desk.send(message(3))) == [Code.OK])
    assert desk.bodies(desk.second) == [body(0), body(1), body(3)]


def test_a_call_ends_at_its_deadline_when_no_master_comes(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.first.answers.clear()
    call = desk.sent(message(1), timeout_ms=400)
    wait_until(lambda: len(desk.first.log) == 2)
    desk.first.stop()
    assert codes(call.get(timeout=5)) == [Code.TIMEOUT]


def test_a_master_that_hangs_is_left_when_another_one_leads(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.go.clear()
    call = desk.sent(message(1))
    wait_until(lambda: len(desk.first.appends) == 2)
    desk.second.lead(2)
    assert codes(call.get(timeout=5)) == [Code.OK]
    assert desk.bodies(desk.second) == [body(0), body(1)]
    assert codes(desk.send(message(2))) == [Code.OK]


def test_a_broker_that_answers_that_it_does_not_lead_is_left(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.second.copy(desk.first)
    desk.first.refuses = True
    call = desk.sent(message(1))
    gevent.sleep(0.05)
    desk.first.leads = False
    desk.second.lead(2)
    assert codes(call.get(timeout=5)) == [Code.OK]
    assert desk.bodies(desk.second) == [body(0), body(1)]


def test_a_broker_that_says_that_it_leads_and_refuses_is_not_asked_without_pauses(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.first.refuses = True
    assert codes(desk.send(message(1), timeout_ms=1000)) != [Code.OK]
    assert len(desk.first.asked) < 60


def test_another_log_does_not_get_what_was_sent_to_the_one_before(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.first.answers.clear()
    call = desk.sent(message(1))
    wait_until(lambda: len(desk.first.log) == 2)
    desk.second.log_id = "b" * 32
    desk.switch(has_all=False)
    assert codes(call.get(timeout=5)) == [Code.TIMEOUT]
    assert desk.second.log == []


def test_messages_are_given_up_when_the_proxy_stops_without_a_master(desk):
    assert codes(desk.send(message(0))) == [Code.OK]
    desk.first.answers.clear()
    call = desk.sent(message(1), timeout_ms=3000)
    wait_until(lambda: len(desk.first.log) == 2)
    desk.first.stop()
    wait_until(lambda: desk.group.append.lanes[0].link is None)
    waits = desk.sent(message(2), timeout_ms=3000)
    wait_until(lambda: waiting(desk) == 2)
    desk.group.append.close()
    assert codes(call.get(timeout=1)) == [Code.TIMEOUT]
    assert codes(waits.get(timeout=1)) == [Code.UNAVAILABLE]


@pytest.mark.parametrize("has_all", [True, False], ids=["stored", "missing"])
def test_a_delayed_message_on_its_way_is_stored_once_by_the_next_master(desk, has_all):
    for number in range(3):
        assert codes(desk.send(message(number))) == [Code.OK]
    delayed = Message(topic="orders", body=b"000009", delay_ms=60_000)
    desk.first.answers.clear()
    call = desk.sent(delayed)
    wait_until(lambda: desk.first.timers)
    desk.second.copy(desk.first)
    if not has_all:
        desk.second.timers.clear()
        del desk.second.log[3:]
    desk.switch(has_all=False)
    assert codes(call.get(timeout=3)) == [Code.OK]
    assert len(desk.second.timers) == 1
    assert desk.second.timers_again == [3], "from the end that the last append has told"
