"""One id is stored once over three real engines: with any key, without one, after more queues, delayed, or across a crash."""

import json

import pytest

import producer_proxy.proxy as proxy_module
from common.breaker import State
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, Operation
from common.keyhash import queue_of
from common.net import listen
from common.placement import home_of_id
from engine.client.brokers import Brokers
from engine.link import layout
from engine.link.claim import Claim, decode_claimed, encode_claims
from engine.link.look_up import decode_look_up_answer, encode_look_up
from producer_proxy.proxy import ProducerProxy
from tests.contract.link_engine import KEY, Engine
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import SECRET, Client, codes, credential, request

NAMES = ("east", "north", "west")
QUEUES = 12
FORMS = [("native", "hot"), ("native", "slow"), ("twin", "slow")]


class Groups:
    """Three engines and a producer proxy."""

    def __init__(self, directory, kind: str, path: str, monkeypatch) -> None:
        if path == "slow":
            monkeypatch.setattr(proxy_module, "Front", None)
        self.engines = {name: Engine(directory / name, kind) for name in NAMES}
        self.store = MemoryConfigStore()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        self.store.put("application", "shop", app.to_value(), 0)
        self.define(QUEUES)
        for name, engine in self.engines.items():
            self.store.put("broker_group", name, {"address": f"127.0.0.1:{engine.server.port}"}, 0)
        self.view = ConfigView(self.store)
        self.brokers = Brokers(KEY, role="producer_proxy")
        self.proxy = ProducerProxy([(listen("127.0.0.1", 0), None)], self.view, self.brokers)
        wait_until(self.all_closed)
        self.client = Client(self.proxy.server.ports[0])
        self.fixed = credential()

    def all_closed(self) -> bool:
        return len(self.brokers.listed) == 3 and all(each.breaker.state is State.CLOSED for each in self.brokers.listed)

    def define(self, queues: int, version: int = 0) -> None:
        definition = TopicDefinition("once", queues, "memory", id_window_ms=60_000)
        self.store.put("topic", "once", definition.to_value(), version)

    def grow(self) -> None:
        found = self.store.get("topic", "once")
        self.define(2 * QUEUES + 1, found.version)
        wait_until(lambda: self.view.topic("once").queues == 2 * QUEUES + 1)

    def send(self, *messages: Message) -> list:
        return self.client.call(request(*messages, credential=self.fixed))

    def home_of_id(self, shown: str) -> str:
        number = home_of_id(shown.encode(), self.brokers.id_homes)
        return next(each.name for each in self.brokers.listed if each.number == number)

    def home(self, queue: int) -> str:
        destination = self.proxy._known.get(b"once")
        return next(each.name for each in self.brokers.listed if each.number == destination.homes[queue])

    def claim(self, shown: str, queue: int) -> tuple[int, int | None, int | None]:
        claim = Claim("once", QUEUES, shown, queue, 60_000)
        code, answer = self.engines[self.home_of_id(shown)].ask(layout.CLAIM, encode_claims(layout.MEMORY, [claim]))
        assert code == 0, answer
        return decode_claimed(answer, 1)[0]

    def stored(self) -> int:
        """Messages of the topic in all engines."""
        total = 0
        for engine in self.engines.values():
            topic = engine.log.topic("once")
            total += sum(engine.log.bounds(topic.id, queue)[1] for queue in range(topic.queues)) if topic else 0
        return total

    def close(self) -> None:
        self.proxy.stop()
        for engine in self.engines.values():
            engine.close()
        self.view.close()


@pytest.fixture(params=FORMS, ids="-".join)
def groups(request, monkeypatch, tmp_path):
    kind, path = request.param
    if path == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Groups(tmp_path, kind, path, monkeypatch)
    yield made
    made.close()


def message(number: int, key: str | None, **fields) -> Message:
    return Message(topic="once", id=f"order-{number}", key=key, body=b"b", **fields)


@pytest.mark.parametrize("keys", [("k0", "k1", None), (None, "k0", "k1")], ids=["keyed first", "plain first"])
def test_a_copy_with_another_key_or_with_none_is_a_duplicate(groups, keys):
    for number in range(60):
        first, *copies = [groups.send(message(number, key and f"{key}-{number}"))[0] for key in keys]
        assert first.code == Code.OK
        assert {(each.code, each.queue, each.offset) for each in copies} == {
            (Code.DUPLICATE, first.queue, first.offset)
        }
    assert groups.stored() == 60


def test_copies_in_one_call_keep_their_places_and_other_messages_go_on(groups):
    sends = [message(number % 20, f"key-{number}") for number in range(60)]
    results = groups.send(*sends, Message(topic="once", body=b"free"))
    assert codes(results).count(Code.OK) == 21 and codes(results).count(Code.DUPLICATE) == 40
    assert groups.stored() == 21


def test_copies_are_found_after_the_topic_got_more_queues(groups):
    keyed = [message(number, f"key-{number}") for number in range(60)]
    delayed = [message(number, f"key-{number}", delay_ms=3_600_000) for number in range(100, 160)]
    assert codes(groups.send(*keyed, *delayed)) == [Code.OK] * 120
    groups.grow()
    assert codes(groups.send(*keyed, *delayed)) == [Code.DUPLICATE] * 120
    assert groups.stored() == 60


def test_a_claim_without_a_message_decides_the_queue_of_every_copy(groups):
    assert codes(groups.send(Message(topic="once"))) == [Code.OK]
    for number in range(30):
        home = groups.home_of_id(f"order-{number}")
        queue = next(queue for queue in range(QUEUES) if groups.home(queue) != home)
        assert groups.claim(f"order-{number}", queue) == (Code.OK, queue, None)
        results = [groups.send(message(number, key))[0] for key in (None, f"key-{number}")]
        assert codes(results) == [Code.OK, Code.DUPLICATE]
        assert {each.queue for each in results} == {queue}
    assert groups.stored() == 31


def test_a_claim_at_the_home_of_its_queue_refuses_neither_its_message_nor_a_copy(groups):
    assert codes(groups.send(Message(topic="once"))) == [Code.OK]
    sent = [message(number, f"key-{number}", **({"delay_ms": 3_600_000} if number % 2 else {})) for number in range(60)]
    queues = {each.id: queue_of(each.key.encode(), QUEUES) for each in sent}
    sent = [each for each in sent if groups.home(queues[each.id]) == groups.home_of_id(each.id)]
    assert {groups.claim(each.id, queues[each.id])[0] for each in sent} == {Code.OK}
    assert codes(groups.send(*sent)) == [Code.OK] * len(sent)
    copies = [message(each.id.removeprefix("order-"), None, delay_ms=each.delay_ms) for each in sent]
    assert codes(groups.send(*sent, *copies)) == [Code.DUPLICATE] * 2 * len(sent)


def test_a_message_whose_ids_home_is_away_is_stored_nowhere(groups):
    assert codes(groups.send(*[Message(topic="once") for _ in range(50)])) == [Code.OK] * 50
    keyed = [message(number, f"key-{number}") for number in range(200)]
    lost = [
        each
        for each in keyed
        if groups.home_of_id(each.id) == "north" and groups.home(queue_of(each.key.encode(), QUEUES)) != "north"
    ]
    assert len(lost) > 10
    before = groups.stored()
    north = next(each for each in groups.brokers.listed if each.name == "north")
    north.append.close()
    north.rpc.close()
    assert set(codes(groups.send(*lost))) == {Code.UNAVAILABLE}
    assert groups.stored() == before


class SilentOnce:
    """A broker's link on which one operation is done and its answer lost, as when it comes after the deadline."""

    def __init__(self, rpc, op: int) -> None:
        self._rpc, self._op, self.lost = rpc, op, 0

    def __getattr__(self, name):
        return getattr(self._rpc, name)

    def call(self, op, payload, timeout_s):
        code, answer = self._rpc.call(op, payload, timeout_s)
        if op != self._op:
            return code, answer
        self.lost += 1
        return int(Code.TIMEOUT), b""


def pending(groups) -> int:
    """Delayed messages at all engines."""
    return sum(len(engine.timers.pending(0, 10_000)[0]) for engine in groups.engines.values())


def delayed_ids_of_timeouts(groups, count: int, delay_ms: int, *keys: str) -> list[str]:
    """Send delayed messages whose answers are lost; their ids, as the TIMEOUT names them."""
    links = {broker: broker.rpc for broker in groups.brokers.listed}
    for broker in links:
        broker.rpc = SilentOnce(broker.rpc, layout.TIMER_ADD)
    sent = [Message(topic="once", key=key, body=b"b", delay_ms=delay_ms) for key in keys or (None,) * count]
    results = groups.send(*sent)
    assert set(codes(results)) == {Code.TIMEOUT}
    assert min(broker.rpc.lost for broker in links) > 0, "every group has some of them"
    for broker, rpc in links.items():
        broker.rpc = rpc
    return [each.id for each in results]


def test_a_delayed_message_that_comes_back_after_a_timeout_is_found_at_any_group(groups):
    shown = delayed_ids_of_timeouts(groups, 30, 3_600_000)
    again = groups.send(*[Message(topic="once", id=each, body=b"b", delay_ms=3_600_000) for each in shown])
    assert {(each.code, each.queue, each.offset) for each in again} == {(Code.DUPLICATE, None, None)}
    assert pending(groups) == 30
    plain = groups.send(*[Message(topic="once", id=each, body=b"b") for each in shown])
    assert set(codes(plain)) == {Code.DUPLICATE} and groups.stored() == 0


def test_it_is_found_after_it_has_fired_too(groups):
    shown = delayed_ids_of_timeouts(groups, 30, 0)
    wait_until(lambda: groups.stored() == 30)
    again = groups.send(*[Message(topic="once", id=each, body=b"b", delay_ms=0) for each in shown])
    assert set(codes(again)) == {Code.DUPLICATE} and all(each.offset is not None for each in again)
    assert (groups.stored(), pending(groups)) == (30, 0)


def test_it_is_cancelled_whatever_its_group_and_may_be_sent_anew_then(groups):
    shown = delayed_ids_of_timeouts(groups, 30, 3_600_000)
    cancels = [Message(topic="once", id=each, operation=Operation.CANCEL) for each in shown]
    assert codes(groups.send(*cancels)) == [Code.OK] * 30
    assert codes(groups.send(*cancels)) == [Code.NOT_CANCELLABLE] * 30
    again = groups.send(*[Message(topic="once", id=each, body=b"b", delay_ms=3_600_000) for each in shown])
    assert codes(again) == [Code.OK] * 30 and pending(groups) == 30


def test_a_group_that_does_not_tell_leaves_open_whether_a_message_is_stored_or_cancelled(groups):
    shown = delayed_ids_of_timeouts(groups, 30, 3_600_000)
    north = next(each for each in groups.brokers.listed if each.name == "north")
    held = [timer.shown_id.decode() for timer in groups.engines["north"].timers.pending(0, 10_000)[0]]
    assert 0 < len(held) < 30
    north.rpc.close()
    results = groups.send(*[Message(topic="once", id=each, body=b"b", delay_ms=3_600_000) for each in shown])
    assert {each.id for each in results if each.code != Code.DUPLICATE} == set(held)
    assert {each.code for each in results if each.id in held} == {Code.TIMEOUT}
    cancels = groups.send(*[Message(topic="once", id=each, operation=Operation.CANCEL) for each in shown])
    lost = {each.code for each in cancels if each.id in held}
    assert Code.OK not in lost and Code.NOT_CANCELLABLE not in lost
    assert {each.code for each in cancels if each.id not in held} == {Code.OK}
    assert pending(groups) == len(held)


class LedAnew:
    """A broker's link; before the first question about ids is answered, another node serves that log: its group has another
    number in the proxy then, as after a switch to another master.
    """

    def __init__(self, groups, name: str) -> None:
        self._groups, self._is_led_anew = groups, False
        self.broker = next(each for each in groups.brokers.listed if each.name == name)
        self._rpc, self.broker.rpc = self.broker.rpc, self

    def __getattr__(self, name):
        return getattr(self._rpc, name)

    def call(self, op, payload, timeout_s):
        if op == layout.CLAIM and not self._is_led_anew:
            self._is_led_anew, before = True, self.broker.number
            self._groups.engines[self.broker.name].begin_anew()
            wait_until(lambda: self.broker.number != before and self._groups.all_closed())
        return self._rpc.call(op, payload, timeout_s)


@pytest.mark.parametrize("delay", [{"delay_ms": 3_600_000}, {}], ids=["delayed", "plain"])
def test_a_group_that_is_led_anew_while_it_is_asked_about_ids_refuses_none_of_them(groups, delay):
    assert codes(groups.send(*[Message(topic="once") for _ in range(50)])) == [Code.OK] * 50
    for name in NAMES:
        LedAnew(groups, name)
    sent = [message(number, f"key-{number}" if number % 2 else None, **delay) for number in range(60)]
    assert codes(groups.send(*sent)) == [Code.OK] * 60
    assert codes(groups.send(*sent)) == [Code.DUPLICATE] * 60
    assert pending(groups) + groups.stored() == 110


def forget_claims(groups) -> None:
    """Let the claims end: as after the topic's window and a minute, which is shorter than many delays."""
    for engine in groups.engines.values():
        engine.log.for_timers.first_copy = lambda topic_id, id_bytes: None


def test_a_delayed_message_is_found_after_its_claim_has_ended(groups):
    keyed = [message(number, f"key-{number}", delay_ms=3_600_000) for number in range(60)]
    assert codes(groups.send(*keyed)) == [Code.OK] * 60
    forget_claims(groups)
    copies = [message(number, None, delay_ms=3_600_000) for number in range(60)]
    assert codes(groups.send(*copies)) == [Code.DUPLICATE] * 60
    copies = [message(number, f"other-{number}", delay_ms=3_600_000) for number in range(60)]
    assert codes(groups.send(*copies)) == [Code.DUPLICATE] * 60
    assert pending(groups) == 60


def test_an_outage_of_one_group_refuses_only_the_delayed_ids_that_live_there(groups):
    assert codes(groups.send(*[Message(topic="once") for _ in range(50)])) == [Code.OK] * 50
    north = next(each for each in groups.brokers.listed if each.name == "north")
    north.append.close()
    north.rpc.close()
    sent = [message(number, None, delay_ms=3_600_000) for number in range(60)]
    refused = {each.id for each in sent if groups.home_of_id(each.id) == "north"}
    results = groups.send(*sent)
    assert 0 < len(refused) < 60
    assert {each.id for each in results if each.code != Code.OK} == refused


def test_a_claim_outlives_a_restart_and_no_look_up_shows_it(tmp_path):
    engine = Engine(tmp_path / "engine", "twin")
    claims = [Claim("once", 4, "order-1", 3, 60_000), Claim("once", 4, "order-1", 2, 60_000)]
    code, answer = engine.ask(layout.CLAIM, encode_claims(layout.FSYNC, claims))
    assert decode_claimed(answer, 2) == [(Code.OK, 3, None), (layout.CLAIMED, 3, None)], code
    engine.close()
    engine = Engine(tmp_path / "engine", "twin")
    try:
        code, answer = engine.ask(layout.CLAIM, encode_claims(layout.FSYNC, claims[1:]))
        assert decode_claimed(answer, 1) == [(layout.CLAIMED, 3, None)]
        question = encode_look_up(0, 10, None, topic="once", id="order-1")
        code, answer = engine.ask(layout.LOOK_UP_ID, question)
        assert (code, decode_look_up_answer(answer)[1]) == (0, [])
    finally:
        engine.close()


@pytest.mark.parametrize(
    "ids",
    [
        None, [["once", 4, "a", 4, 1]], [["once", 0, "a", None, 1]], [["once", 4, "", 1, 1]], [["a/b", 4, "a", 1, 1]],
        [["once", 4, "a", 1, 0]], [["once", 4, "a", True, 1]], [["once", 4, "a", 1]], [["once", 4, "a", 1, 1]] * 10_001,
    ],
    ids=range(9),
)  # fmt: skip
def test_a_wrong_claim_is_refused_and_claims_nothing(tmp_path, ids):
    engine = Engine(tmp_path / "engine", "twin")
    try:
        code, answer = engine.ask(layout.CLAIM, json.dumps({"durability": 1, "ids": ids}).encode())
        assert code == layout.INVALID and answer
        assert engine.log.topics() == [] or not list(engine.log.topics())
    finally:
        engine.close()


def test_an_engine_whose_disk_is_full_tells_what_it_holds_and_claims_nothing(tmp_path, monkeypatch):
    engine = Engine(tmp_path / "engine", "twin")
    try:
        claim = Claim("once", 4, "order-1", 3, 60_000)
        code, _ = engine.ask(layout.CLAIM, encode_claims(layout.MEMORY, [claim]))
        monkeypatch.setattr(type(engine.log.for_timers), "refusal", "the disk is full")
        asked = [claim._replace(queue=None), Claim("once", 4, "order-2", None, 60_000)]
        code, answer = engine.ask(layout.CLAIM, encode_claims(layout.FSYNC, asked))
        assert (code, decode_claimed(answer, 2)) == (0, [(layout.CLAIMED, 3, None), (Code.OK, None, None)])
        code, _ = engine.ask(layout.CLAIM, encode_claims(layout.MEMORY, [claim]))
        assert code == Code.DISK_FULL
    finally:
        engine.close()
