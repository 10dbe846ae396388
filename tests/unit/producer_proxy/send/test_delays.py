"""What a send may ask of time: the table of delays, cancellations and loops, at the producer proxy."""

import json

import pytest

from common import contract
from common.config.definitions import DELAY_MS_MAX, TopicDefinition
from common.contract import Code, Message, Operation, SendResult
from common.ids import IdSource
from common.keyhash import queue_of
from common.wire import walk_send
from engine.client.rpc import LOST
from engine.link import layout
from engine.link.pieces import AnswerPiece, encode_pieces
from engine.link.receipt import NO_TOKEN
from engine.link.timer import ANY_QUEUE, Timer, parse
from producer_proxy.send.delays import DelayStage, is_delayed
from producer_proxy.send.pending import PendingMessage, open_ones
from producer_proxy.send.returned import ReturnedMessages
from producer_proxy.targets.engine import EngineTarget
from producer_proxy.targets.engine_topics import EngineTopics
from producer_proxy.targets.topics import TopicRoute

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
ASSIGNED = bytes(range(16))
CREDENTIAL = contract.Credential("shop", "k1", 0, b"s" * 32)


class Destination:
    name = b"orders"
    topic_id, queues, durability, id_window_ms, homes = 7, 4, layout.FSYNC, 600_000, None

    @staticmethod
    def queue_of_key(key: bytes) -> int:
        return queue_of(key, 4)


class Topics:
    def __init__(self, target: EngineTarget, **fields) -> None:
        self._target, self._definition = target, TopicDefinition("orders", **fields)

    def definition(self, name: str) -> TopicDefinition:
        return self._definition

    def find(self, names: list[str], application: str = "") -> dict:
        return dict.fromkeys(names, TopicRoute(self._target, Destination))


class Rpc:
    """A broker that takes everything, or answers as told."""

    def __init__(self, code: int = 0, each: int = 0, sentence: bytes = b"") -> None:
        self.code, self.each, self.sentence = code, each, sentence
        self.asked: list[tuple[int, bytes]] = []

    def call(self, op: int, payload: bytes, timeout_s: float) -> tuple[int, bytes]:
        self.asked.append((op, payload))
        if self.code:
            return self.code, self.sentence
        count = layout.APPEND_HEAD.unpack_from(payload)[1] if op == layout.TIMER_ADD else 0
        return 0, layout.APPEND_RESULT.pack(self.each, 0, 0) * count

    def timers(self) -> list[Timer]:
        """What was added."""
        found = []
        for op, payload in self.asked:
            at = layout.APPEND_HEAD.size
            while op == layout.TIMER_ADD and at < len(payload):
                found.append(parse(payload, at))
                at += 4 + int.from_bytes(payload[at : at + 4], "little")
        return found


class Named:
    """A broker group."""

    def __init__(self, rpc: Rpc) -> None:
        self.rpc = rpc

    def wait_answered(self, deadline_s: float) -> bool:
        return True


class One:
    """The only broker there is."""

    def __init__(self, rpc: Rpc) -> None:
        self.only = Named(rpc)
        self.listed = [self.only]


def send(rpc: Rpc, *messages: Message, **definition) -> list[SendResult]:
    request = contract.SendRequest(credential=CREDENTIAL, messages=list(messages))
    call = walk_send(contract.encode_call("send", 1, request))
    pending = [PendingMessage(message) for message in call.messages]
    for each in pending:
        each.result = "fault" if each.message.fault else None
    topics = Topics(EngineTarget(One(rpc), EngineTopics(None, None, None)), **definition)
    DelayStage(topics, lambda: NOW, lambda: ASSIGNED, ReturnedMessages(lambda: NOW)).answer(
        open_ones(pending), call.durability, 3
    )
    return [each.result for each in pending]


def delayed(**fields) -> Message:
    return Message(**({"topic": "orders", "body": b"b", "delay_ms": 1000} | fields))


@pytest.mark.parametrize(
    ("fields", "due_ms"),
    [
        ({"delay_ms": 1000}, -1000),
        ({"delay_ms": 0}, 0),
        ({"delay_ms": DELAY_MS_MAX}, -DELAY_MS_MAX),
        ({"delay_ms": None, "deliver_at_ms": NOW + 5}, NOW + 5),
        ({"delay_ms": None, "deliver_at_ms": NOW - DAY_MS}, NOW - DAY_MS),
        ({"delay_ms": None, "deliver_at_ms": 0}, 0),
    ],
)
def test_a_delay_travels_as_a_delay_and_a_moment_as_a_moment_whatever_the_proxys_clock(fields, due_ms):
    rpc = Rpc()
    (result,) = send(rpc, delayed(**fields))
    assert (result.code, result.id, result.queue, result.offset) == (Code.OK, ASSIGNED.hex(), None, None)
    (timer,) = rpc.timers()
    assert (timer.due_ms, timer.topic_id, timer.queue, timer.shown_id) == (
        due_ms,
        7,
        ANY_QUEUE,
        ASSIGNED.hex().encode(),
    )


@pytest.mark.parametrize(
    ("fields", "definition", "sentence"),
    [
        ({"delay_ms": DELAY_MS_MAX + 1}, {}, "Message.delay_ms: at most 400 days ahead for this topic"),
        ({"delay_ms": None, "deliver_at_ms": NOW + DELAY_MS_MAX + 1}, {}, "Message.deliver_at_ms: at most 400 days ahead for this topic"),
        ({"delay_ms": 1001}, {"delay_ms_max": 1000}, "Message.delay_ms: at most 1 second ahead for this topic"),
        ({"delay_ms": 2 * DAY_MS}, {"delay_ms_max": 0, "retention_ms": DAY_MS}, "Message.delay_ms: at most 1 day ahead for this topic"),
        ({"delay_ms": DAY_MS}, {"delay_ms_max": 3_600_000}, "Message.delay_ms: at most 1 hour ahead for this topic"),
        ({"delay_ms": DAY_MS}, {"delay_ms_max": 5_400_000}, "Message.delay_ms: at most 90 minutes ahead for this topic"),
        ({"delay_ms": DAY_MS}, {"delay_ms_max": 1}, "Message.delay_ms: at most 1 ms ahead for this topic"),
        ({"delay_ms": 4 * DAY_MS}, {"delay_ms_max": 0}, "Message.delay_ms: at most 3 days ahead for this topic"),
    ],
)  # fmt: skip
def test_a_delay_beyond_the_topics_horizon_is_invalid_and_names_field_and_rule(fields, definition, sentence):
    rpc = Rpc()
    (result,) = send(rpc, delayed(**fields), **definition)
    assert (result.code, result.error, rpc.asked) == (Code.INVALID, sentence, [])


@pytest.mark.parametrize(
    "fields",
    [{"deliver_at_ms": NOW}, {"delay_ms": 2**63 - 1}, {"delay_ms": -1}, {"delay_ms": None, "deliver_at_ms": 2**63 - 1}],
)
def test_what_the_walker_has_refused_is_left_alone(fields):
    rpc = Rpc()
    assert send(rpc, delayed(**fields)) == ["fault"]
    assert rpc.asked == []


def test_a_key_chooses_the_queue_and_an_own_id_is_found_in_the_bytes():
    rpc = Rpc()
    (result,) = send(rpc, delayed(key="customer 7", id="mine-ü", body=bytes(range(256))))
    (timer,) = rpc.timers()
    assert result.queue == timer.queue == queue_of(b"customer 7", 4)
    assert (result.id, timer.shown_id) == ("mine-ü", "mine-ü".encode())
    stored = contract.decode_struct(Message, timer.record[1:])
    assert (stored.body, stored.delay_ms) == (bytes(range(256)), 1000)


@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        (Rpc(each=Code.DUPLICATE), Code.DUPLICATE),
        (Rpc(code=Code.UNAVAILABLE), Code.UNAVAILABLE),
        (Rpc(code=Code.UNAVAILABLE, sentence=LOST), Code.TIMEOUT),
        (Rpc(code=Code.TIMEOUT), Code.TIMEOUT),
    ],
)
def test_what_the_broker_says_is_the_answer(rpc, code):
    assert [(result.code, result.id) for result in send(rpc, delayed(id="a"), delayed(id="b"))] == [
        (code, "a"),
        (code, "b"),
    ]


def test_a_call_is_done_in_its_order():
    rpc = Rpc()
    withdraw = Message(topic="orders", id="a", operation=Operation.CANCEL)
    results = send(rpc, delayed(id="a"), withdraw, delayed(id="a"), delayed(id="b"))
    assert [result.code for result in results] == [Code.OK] * 4
    assert [op for op, _ in rpc.asked] == [layout.TIMER_ADD, layout.TIMER_CANCEL, layout.TIMER_ADD]


@pytest.mark.parametrize(
    ("fields", "window_ms"),
    [
        ({"id": "mine"}, 600_000),
        ({}, 0),
        ({"id": "mine", "properties": {"penstock-loop-times": "2", "penstock-loop-interval-ms": "100"}}, 0),
    ],
)
def test_a_clients_id_is_checked_but_for_rounds_of_a_loop(fields, window_ms):
    rpc = Rpc()
    send(rpc, delayed(**fields))
    assert rpc.timers()[0].id_window_ms == window_ms


def test_messages_that_are_not_delayed_are_left_to_the_ordinary_way():
    rpc = Rpc()
    plain = Message(topic="orders", body=b"now")
    results = send(rpc, plain, delayed(), plain)
    assert [result and result.code for result in results] == [None, Code.OK, None]
    assert len(rpc.timers()) == 1


def test_a_cancellation_goes_to_the_broker_under_the_id_that_was_shown():
    rpc = Rpc()
    (result,) = send(rpc, Message(topic="orders", id="mine", operation=Operation.CANCEL))
    assert (result.code, result.id) == (Code.OK, "mine")
    ((op, payload),) = rpc.asked
    assert (op, json.loads(payload)) == (layout.TIMER_CANCEL, {"durability": 2, "topic": "orders", "id": "mine"})


def test_what_cannot_be_cancelled_says_so():
    rpc = Rpc(code=Code.NOT_CANCELLABLE, sentence=b"no such delayed message, or already delivered")
    (result,) = send(rpc, Message(topic="orders", id="mine", operation=Operation.CANCEL))
    assert (result.code, result.error) == (
        Code.NOT_CANCELLABLE,
        "Message.id: no such delayed message, or already delivered",
    )


def test_a_cancellation_whose_link_broke_may_have_been_done():
    rpc = Rpc(code=Code.UNAVAILABLE, sentence=LOST)
    (result,) = send(rpc, Message(topic="orders", id="mine", operation=Operation.CANCEL))
    assert (result.code, result.id) == (Code.TIMEOUT, "mine")


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ({"times": "3", "interval-ms": "2000"}, (2000, 2, 1, 0)),
        ({"times": "1", "interval-ms": "100"}, (100, 0, 1, 0)),
        ({"times": "10", "interval-ms": "2000", "growth": "2"}, (2000, 9, 2, 0)),
        ({"times": "5", "interval-ms": "60000", "until-ms": str(NOW + DAY_MS)}, (60_000, 4, 1, NOW + DAY_MS)),
    ],
)
def test_a_loop_is_asked_for_by_properties(loop, expected):
    rpc = Rpc()
    (result,) = send(
        rpc, delayed(properties={"penstock-loop-" + name: text for name, text in loop.items()} | {"other": "x"})
    )
    assert result.code == Code.OK
    (timer,) = rpc.timers()
    assert (timer.gap_ms, timer.times, timer.growth, timer.until_ms) == expected


@pytest.mark.parametrize(
    ("loop", "sentence"),
    [
        ({"times": "3"}, "a loop needs penstock-loop-interval-ms too"),
        ({"interval-ms": "2000"}, "a loop needs penstock-loop-times too"),
        ({"times": "0", "interval-ms": "2000"}, "penstock-loop-times is a number from 1 to 1000000"),
        ({"times": "9" * 19, "interval-ms": "2000"}, "penstock-loop-times is a number from 1 to 1000000"),
        ({"times": "3", "interval-ms": "99"}, f"penstock-loop-interval-ms is a number from 100 to {DELAY_MS_MAX}"),
        ({"times": "3", "interval-ms": "-5"}, f"penstock-loop-interval-ms is a number from 100 to {DELAY_MS_MAX}"),
        ({"times": "3", "interval-ms": "٣٠٠٠"}, f"penstock-loop-interval-ms is a number from 100 to {DELAY_MS_MAX}"),
        ({"times": "3", "interval-ms": "2000", "growth": "1.5"}, "penstock-loop-growth is a number from 1 to 1000"),
        ({"every": "3"}, "penstock-loop-every is none of times, interval-ms, growth, until-ms"),
    ],
)
def test_a_loop_that_makes_no_sense_is_invalid_and_names_the_property(loop, sentence):
    rpc = Rpc()
    (result,) = send(rpc, delayed(properties={"penstock-loop-" + name: text for name, text in loop.items()}))
    assert (result.code, result.error, rpc.asked) == (Code.INVALID, "Message.properties: " + sentence, [])


def test_only_a_delay_a_moment_or_an_operation_make_a_message_special():
    for fields, special in (
        ({}, False),
        ({"delay_ms": 0}, True),
        ({"deliver_at_ms": 0}, True),
        ({"operation": 1, "id": "a"}, True),
    ):
        request = contract.SendRequest(credential=CREDENTIAL, messages=[Message(topic="orders", **fields)])
        (message,) = walk_send(contract.encode_call("send", 1, request)).messages
        assert is_delayed(message) is special


class Fired(Rpc):
    """A broker that has stored one message, at queue 2 and offset 7; it has fired."""

    def call(self, op: int, payload: bytes, timeout_s: float) -> tuple[int, bytes]:
        if op != layout.LOOK_UP_ID:
            return super().call(op, payload, timeout_s)
        self.asked.append((op, payload))
        pieces = encode_pieces([AnswerPiece(NO_TOKEN, 7, 0, 2, 1, 1, NOW, b"\0\0\0\0m")])
        report = json.dumps({"next": None, "read_bytes": 0}).encode()
        return 0, layout.U32.pack(len(report)) + report + pieces


def test_a_delayed_message_that_comes_back_after_it_has_fired_is_a_duplicate():
    shown = IdSource(lambda: NOW).next().hex()
    rpc = Fired()
    results = send(rpc, delayed(id=shown), delayed(id="own"), delayed())
    assert [(result.code, result.queue, result.offset) for result in results] == [
        (Code.DUPLICATE, 2, 7), (Code.OK, None, None), (Code.OK, None, None)
    ]  # fmt: skip
    assert [op for op, _ in rpc.asked] == [layout.LOOK_UP_ID, layout.TIMER_ADD]
    assert len(rpc.timers()) == 2


def test_a_delayed_message_that_comes_back_before_it_fires_is_left_to_the_engine():
    rpc = Rpc(code=layout.UNKNOWN_TOPIC)  # of the look-up: it has no such message
    rpc.call = lambda op, payload, timeout_s, call=rpc.call: (
        call(op, payload, timeout_s)
        if op == layout.LOOK_UP_ID
        else Rpc(each=Code.DUPLICATE).call(op, payload, timeout_s)
    )
    (result,) = send(rpc, delayed(id=IdSource(lambda: NOW).next().hex()))
    assert result.code == Code.DUPLICATE
