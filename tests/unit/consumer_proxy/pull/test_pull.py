"""A pull from frame to reply: every outcome that a client can meet, without sockets."""

import struct

import pytest
from thriftpy2.thrift import TApplicationException

from common.contract import Ack, Code, Position, PullRequest, decode_reply, encode_call
from consumer_proxy.admission import admission
from engine.link.codes import AT_BOUND, NO_ROOM
from engine.link.pull import AT_TIME
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record, reports
from tests.unit.consumer_proxy.world import ID, SECRET

ONE = answer([piece([record(message(), ID)])])


def test_a_pull_asks_for_what_the_call_says(world):
    world.call(topics=["refunds", "orders"], max_messages=7, max_bytes=800, wait_ms=900, invisible_ms=1000)
    asked = world.asked()
    assert (asked.group, asked.topics) == ("billing", (("refunds", 2), ("orders", 4)))
    assert (asked.max_messages, asked.max_bytes, asked.wait_ms, asked.invisible_ms) == (7, 800, 900, 1000)
    assert asked.acks == []


def test_dead_letters_need_a_grant_of_their_own_which_names_their_group(world):
    code, sentence = world.refused(topics=["_dlq.billing"])
    assert (code, sentence) == (Code.FORBIDDEN, "application shop has no grant for dead letters in _dlq.billing")
    fields = [["group", "billing"], ["dead_letters", "billing"]]
    world.put_app([], world.store.get("application", "shop").version, pull_grants=fields)
    world.call(topics=["_dlq.billing"])
    assert world.asked().topics == (("_dlq.billing", 1),)
    world.source.asked.clear()
    assert world.refused(topics=["_dlq.others"])[0] == Code.FORBIDDEN


def test_a_grant_for_a_topic_is_none_for_the_group_of_that_name_and_the_reverse(world):
    version = world.put_app(
        [], world.store.get("application", "shop").version, pull_grants=[["topic", "billing"], ["group", "orders"]]
    )
    for group, topic in (("billing", "billing"), ("orders", "orders"), ("billing", "orders")):
        assert world.refused(group=group, topics=[topic])[0] == Code.FORBIDDEN
    world.put_app([], version, pull_grants=[["topic", "orders"], ["group", "billing"]])
    world.call()
    assert world.asked().topics == (("orders", 4),)


def test_a_longer_wait_than_the_longest_counts_as_the_longest(world):
    world.call(wait_ms=2**31 - 1)
    assert world.asked().wait_ms == 30_000


def test_what_the_call_leaves_open_comes_from_the_group_and_the_contract(world):
    world.call(topics=None)
    asked = world.asked()
    assert asked.topics == (("orders", 4),)
    assert (asked.max_messages, asked.max_bytes, asked.wait_ms) == (32, 1 << 20, 0)
    assert (asked.invisible_ms, asked.start) == (5000, 1)


def test_the_answer_tells_the_lease_time_that_the_call_left_to_the_group(world):
    world.call()
    world.source.answer(ONE)
    assert world.response().invisible_ms == 5000
    world.call(invisible_ms=2000)
    world.source.answer(ONE)
    assert world.response().invisible_ms is None


def test_a_group_that_starts_at_the_latest_begins_when_that_was_set_and_not_at_its_first_pull(world):
    world.store.put("group", "billing", {"topics": ["orders"], "start": "latest", "start_at_ms": 9}, 1)
    world.call(topics=None)
    assert world.asked().start == AT_TIME


def test_the_answer_becomes_the_reply(world):
    world.call()
    assert world.connection.replies == []
    world.source.answer(ONE)
    response = world.response()
    assert (response.code, response.ack_results, response.error) == (Code.OK, [], None)
    assert [(d.offset, d.id, d.message.topic) for d in response.deliveries] == [(1000, ID.hex(), "orders")]
    assert (world.stats.pulls, world.stats.deliveries, world.pulls.waiting) == (1, 1, 0)


def test_the_first_verified_credential_makes_the_connection_trusted(world):
    world.call(credential=world.credential(secret="x" * 43))
    assert not world.connection.trusted
    world.connection.replies.clear()
    world.call()
    assert world.connection.trusted


@pytest.mark.parametrize(
    "fields, code, text",
    [
        ({"max_messages": -1}, Code.INVALID, "max_messages"),
        ({"max_messages": 10_001}, Code.INVALID, "max_messages"),
        ({"max_messages": 10**9}, Code.INVALID, "max_messages"),
        ({"max_bytes": 0}, Code.INVALID, "max_bytes"),
        ({"max_bytes": -(2**31)}, Code.INVALID, "max_bytes"),
        ({"max_bytes": (12 << 20) + 1}, Code.INVALID, "max_bytes"),
        ({"wait_ms": -1}, Code.INVALID, "wait_ms"),
        ({"invisible_ms": 999}, Code.INVALID, "invisible_ms"),
        ({"invisible_ms": 12 * 3_600_000 + 1}, Code.INVALID, "invisible_ms"),
        ({"group": ""}, Code.INVALID, "group"),
        ({"group": "a/b"}, Code.INVALID, "group"),
        ({"group": ".."}, Code.INVALID, "group"),
        ({"group": "g" * 250}, Code.INVALID, "group"),
        ({"topics": ["%RETRY%x"]}, Code.INVALID, "topics"),
        ({"topics": ["orders\n"]}, Code.INVALID, "topics"),
        ({"topics": ["gone"]}, Code.UNKNOWN_TOPIC, "gone"),
        ({"topics": ["orders", "secret"]}, Code.FORBIDDEN, "secret"),
        ({"topics": ["secret"]}, Code.FORBIDDEN, "secret"),
        ({"topics": ["nowhere"]}, Code.FORBIDDEN, "nowhere"),
        ({"group": "theirs"}, Code.FORBIDDEN, "theirs"),
        ({"group": "hollow", "topics": None}, Code.UNKNOWN_GROUP, "hollow"),
        ({"group": "hollow", "topics": []}, Code.UNKNOWN_GROUP, "hollow"),
    ],
)
def test_a_broken_rule_is_named(world, fields, code, text):
    got, sentence = world.refused(**fields)
    assert (got, text in sentence) == (code, True), sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"max_messages": 1, "max_bytes": 1, "invisible_ms": 1000},
        {"max_messages": 10_000, "max_bytes": 12 << 20, "wait_ms": 30_000, "invisible_ms": 12 * 3_600_000},
        {"max_messages": 0},
        {"invisible_ms": 0},
        {"group": "hollow", "topics": None, "max_messages": 0},
    ],
)
def test_the_edges_of_the_ranges_are_allowed(world, fields):
    world.call(**fields)
    assert len(world.source.asked) == 1


@pytest.mark.parametrize("app, secret", [("shop", "wrong" * 9), ("nobody", SECRET)])
def test_a_forged_credential_is_unauthenticated(world, app, secret):
    assert world.refused(credential=world.credential(app, secret))[0] == Code.UNAUTHENTICATED


@pytest.mark.parametrize("age_ms", [300_001, -300_001])
def test_a_credential_outside_its_window_is_unauthenticated(world, age_ms):
    stale = world.credential(at_ms=world.clock.now_ms() - age_ms)
    assert world.refused(credential=stale)[0] == Code.UNAUTHENTICATED


def many_topics(world, count=256):
    """As many as a pull may name, of the longest names."""
    names = [f"{number:0>249}" for number in range(count)]
    for name in names:
        world.store.put("topic", name, {"queues": 1}, 0)
    world.put_app([["pull", "*"]], world.store.get("application", "shop").version)
    return names


def looked_up(world, monkeypatch):
    """The topics that the configuration is asked for, from now on."""
    asked, ask = [], world.view.topic
    monkeypatch.setattr(world.view, "topic", lambda name: asked.append(name) or ask(name))
    return asked


def test_a_pull_of_many_topics_is_looked_up_once(world, monkeypatch):
    names, credential = many_topics(world), world.credential()
    asked = looked_up(world, monkeypatch)
    for _ in range(3):
        world.call(credential=credential, topics=names)
        assert [name for name, _ in world.asked().topics] == names
        world.source.answer(answer([]))
        assert world.response().code == Code.OK
    assert asked == names


def test_remembered_topics_are_bounded_in_bytes(world, monkeypatch):
    names, credential = many_topics(world, 3), world.credential()
    asked = looked_up(world, monkeypatch)
    monkeypatch.setattr(admission, "TOPICS_BYTES_MAX", 1200)  # two of them
    for name in (names[0], names[1], names[0], names[2], names[0]):
        world.call(credential=credential, topics=[name])
        world.source.answer(answer([]))
        assert world.response().code == Code.OK
    assert asked == [names[0], names[1], names[2], names[0]]


def test_a_remembered_verdict_ends_with_the_credential(world):
    credential = world.credential()
    world.call(credential=credential)
    world.source.answer(answer([]))
    assert world.response().code == Code.OK
    world.clock.advance(300_001)
    assert world.refused(credential=credential)[0] == Code.UNAUTHENTICATED


def test_a_remembered_verdict_ends_with_a_change_of_the_configuration(world):
    credential = world.credential()
    world.call(credential=credential)
    world.source.answer(answer([]))
    assert world.response().code == Code.OK
    version = world.store.get("application", "shop").version
    world.put_app([["pull", "billing"]], version)
    assert world.refused(credential=credential)[0] == Code.FORBIDDEN


def test_a_revoked_key_is_refused_at_once(world):
    credential = world.credential()
    world.call(credential=credential)
    world.source.answer(answer([]))
    assert world.response().code == Code.OK
    version = world.store.get("application", "shop").version
    world.store.put("application", "shop", {"keys": [], "grants": [["pull", "*"]]}, version)
    assert world.refused(credential=credential)[0] == Code.UNAUTHENTICATED


def test_a_missing_topic_is_reported_beside_what_the_others_give(world):
    for _ in range(2):  # the second verdict is remembered
        world.call(topics=["gone", "orders"])
        assert world.asked().topics == (("orders", 4),)
        world.source.answer(ONE)
        response = world.response()
        assert (response.code, response.error, len(response.deliveries)) == (Code.OK, None, 1)
        assert [(r.code, r.topic, r.error) for r in response.topics] == [
            (Code.UNKNOWN_TOPIC, "gone", "there is no topic gone")
        ]


def test_a_topic_whose_home_is_kafka_is_pulled_from_the_engine_as_any_other(world):
    world.store.put("kafka", "main", {"bootstrap": "127.0.0.1:9092"}, 0)
    settings = {"queues": 3, "home": "kafka:main", "id_window_ms": 0}
    world.store.put("topic", "refunds", settings, world.store.get("topic", "refunds").version)
    world.call(topics=["refunds", "orders"])
    assert world.asked().topics == (("refunds", 3), ("orders", 4))


def test_a_topic_that_is_deleted_does_not_stop_the_groups_other_topics(world):
    group = world.store.get("group", "billing")
    world.store.put("group", "billing", {**group.value, "topics": ["orders", "refunds"]}, group.version)
    world.call(topics=None)
    assert world.asked().topics == (("orders", 4), ("refunds", 2))
    world.source.answer(answer([]))
    assert world.response().topics is None
    world.store.delete("topic", "refunds", world.store.get("topic", "refunds").version)
    world.call(topics=None)
    assert world.asked().topics == (("orders", 4),)
    world.source.answer(answer([]))
    assert [r.topic for r in world.response().topics] == ["refunds"]


def test_while_the_engine_is_away_pulls_are_told_when_to_come_back(world):
    world.source.rpc.is_up = False
    world.call(acks=[Ack(receipt(0))])
    response = world.response()
    assert (response.code, response.retry_after_ms) == (Code.UNAVAILABLE, 200)
    assert [r.code for r in response.ack_results] == [Code.UNAVAILABLE]


@pytest.mark.parametrize(
    "code, shown, again",
    [
        (Code.UNAVAILABLE, Code.UNAVAILABLE, True),
        (Code.OVERLOADED, Code.OVERLOADED, True),
        (Code.SHUTTING_DOWN, Code.UNAVAILABLE, True),
        (Code.INVALID, Code.INVALID, False),
        (Code.TIMEOUT, Code.TIMEOUT, False),
    ],
)
def test_an_error_of_the_engine_reaches_the_client(world, code, shown, again):
    world.call()
    world.source.answer(b"why", code)
    response = world.response()
    assert (response.code, response.error) == (shown, "why")
    assert (response.retry_after_ms is not None) == again


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\5\0\0\0", answer([]) + b"x", ONE[:-1]])
def test_a_damaged_answer_is_unavailable_and_the_proxy_goes_on(world, payload):
    world.call()
    world.source.answer(payload)
    assert world.response().code == Code.UNAVAILABLE
    world.call()
    world.source.answer(ONE)
    assert len(world.response().deliveries) == 1


def test_an_engine_that_does_not_answer_makes_a_timeout(world):
    world.call(wait_ms=1000)
    world.clock.advance(3900)
    world.pulls.sweep()
    assert world.connection.replies == []
    world.clock.advance(600)
    world.pulls.sweep()
    assert world.response().code == Code.TIMEOUT
    assert len(world.source.cancelled) == 1


@pytest.mark.parametrize(
    "code, reason", [(AT_BOUND, "withheld by RETRY"), (NO_ROOM, "there may be messages, pull again")]
)
def test_an_empty_answer_that_has_a_reason_says_it_and_its_acknowledgements_count(world, code, reason):
    world.call(acks=[Ack(receipt(0))])
    world.source.answer(answer([], codes=(0,)), code)
    response = world.response()
    assert (response.code, response.retry_after_ms) == (Code.OVERLOADED, 200)
    assert reason in response.error
    assert [result.code for result in response.ack_results] == [Code.OK]


def test_bytes_that_are_no_pull_get_an_application_exception(world):
    frame = encode_call("pull", 5, PullRequest(world.credential(), "billing"))
    world.pulls.on_call(world.connection, frame[:-1])
    with pytest.raises(TApplicationException) as raised:
        decode_reply(world.connection.replies.pop(), 5)
    assert raised.value.type == TApplicationException.PROTOCOL_ERROR


@pytest.mark.parametrize("method", ["send", "push", "", "PULL"])
def test_an_unknown_method_is_named_so(world, method):
    name = method.encode()
    world.pulls.on_call(world.connection, struct.pack(">HHI", 0x8001, 1, len(name)) + name + b"\0\0\0\7\0")
    with pytest.raises(TApplicationException) as raised:
        decode_reply(world.connection.replies.pop(), 7)
    if method:
        assert raised.value.type == TApplicationException.UNKNOWN_METHOD


def test_a_failure_of_our_own_is_answered_too(world, monkeypatch):
    monkeypatch.setattr(world.source, "pull", lambda request, answer: 1 / 0)
    world.call()
    assert world.response().code == Code.UNAVAILABLE


def test_a_message_that_no_reply_can_hold_is_told_and_given_back(world):
    world.call()
    world.source.answer(answer([piece([record(message(body=bytes(16_384_000)), ID)])]))
    assert world.response().code == Code.TOO_LARGE
    assert world.stats.given_back == 1


def test_what_does_not_fit_into_a_reply_is_given_back(world):
    world.call(max_bytes=12 << 20)
    world.source.answer(answer([piece([record(message(body=bytes(6_000_000)), ID)] * 3)]))
    assert len(world.response().deliveries) == 2
    assert [(each.first, each.count) for each in world.source.told[0].acks] == [(2, 1)]


def test_a_topic_that_is_made_again_is_asked_for_by_its_time_of_creation(world):
    for made_ms in (1_800_000_000_001, 1_800_000_000_002):
        entry = world.store.get("topic", "refunds")
        world.store.put("topic", "refunds", {"queues": 2, "made_ms": made_ms}, entry.version)
        world.call(topics=["refunds"])
        assert world.asked().topics == ((f"refunds@{made_ms}", 2),)
        world.source.answer(ONE)
        world.response()
    world.call(topics=None, positions=[Position("refunds", 1, offset=0)])
    assert world.asked()["positions"][0]["topic"] == "refunds@1800000000002"
    world.source.answer(reports({"code": 0, "next_offset": 0, "min_offset": 0, "end_offset": 0}))
    assert [(r.topic, r.queue) for r in world.response().positions] == [("refunds", 1)]
