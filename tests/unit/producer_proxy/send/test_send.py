"""send through a producer proxy and a broker in memory; every case on the hot path's front and on the reference alone."""

import os

import gevent
import pytest

from common import contract
from common.config.definitions import ApplicationDefinition, Grant, Key
from common.contract import Code, Durability, Message
from common.keyhash import queue_of
from engine.client.durability import LANES
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import SECRET, Desk, codes, credential, request


def test_a_message_is_stored_as_the_bytes_that_came_under_the_id_that_the_answer_names(desk):
    client = desk.client()
    fixed = credential()
    for body in (b"first", b"second", bytes(range(256)) * 50):
        sent = Message(topic="orders", body=body, properties={"a": "ü"})
        (result,) = client.call(request(sent, credential=fixed))
        topic_id = desk.broker.topics["orders"]["id"]
        id16, encoded = desk.broker.stored[(topic_id, result.queue)][result.offset]
        assert result.code == Code.OK and id16.hex() == result.id
        assert encoded in contract.encode_call("send", 1, request(sent))


def test_a_key_always_goes_to_kafkas_queue_and_results_keep_the_order_of_messages(desk):
    client = desk.client()
    fixed = credential()
    for _ in range(3):
        messages = [Message(topic=("orders", "pay")[i % 2], key=f"key{i}", body=b"%d" % i) for i in range(50)]
        results = client.call(request(*messages, credential=fixed))
        for i, result in enumerate(results):
            assert result.queue == queue_of(f"key{i}".encode(), 4)
            topic_id = desk.broker.topics[messages[i].topic]["id"]
            assert messages[i].body in desk.broker.stored[(topic_id, result.queue)][result.offset][1]


def test_messages_without_a_key_take_one_queue_an_append_and_all_queues_in_turn(desk):
    client = desk.client()
    fixed = credential()
    seen = []
    for _ in range(8):
        results = client.call(request(*[Message(topic="orders", body=b"x")] * 5, credential=fixed))
        assert len({result.queue for result in results}) == 1
        seen.append(results[0].queue)
    assert set(seen) == {0, 1, 2, 3}


def test_an_id_that_the_client_set_is_kept_and_none_is_assigned(desk):
    client = desk.client()
    fixed = credential()
    for number in range(3):
        (result,) = client.call(request(Message(topic="orders", id=f"mine-{number}"), credential=fixed))
        topic_id = desk.broker.topics["orders"]["id"]
        assert result.id == f"mine-{number}"
        assert desk.broker.stored[(topic_id, result.queue)][result.offset][0] is None


def test_a_message_with_the_clients_id_is_checked_by_itself_and_keeps_its_place_among_those_of_its_key(desk):
    client = desk.client()
    fixed = credential()
    for number in range(3):
        names = [None, f"a{number}", None, None, f"b{number}", f"c{number}", None]
        messages = [Message(topic="orders", key="k", body=b"%d" % at, id=name) for at, name in enumerate(names)]
        results = client.call(request(*messages, credential=fixed))
        queue = queue_of(b"k", 4)
        assert [(r.code, r.queue, r.offset) for r in results] == [(Code.OK, queue, 7 * number + at) for at in range(7)]
        stored = desk.broker.stored[(desk.broker.topics["orders"]["id"], queue)][-7:]
        assert [id16 is None for id16, _ in stored] == [name is not None for name in names]
        assert desk.broker.appends[-1][1] == 6, "neighbours without an id share a batch"
        assert desk.broker.checked[-3:] == [(desk.broker.topics["orders"]["id"], queue, 600_000)] * 3


def test_a_duplicate_is_answered_with_the_queue_and_offset_that_the_broker_names(desk):
    client = desk.client()
    fixed = credential()
    client.call(request(Message(topic="orders", id="first"), credential=fixed))
    desk.broker.batch_code, desk.broker.first_queue = Code.DUPLICATE, 3
    for _ in range(2):
        (result,) = client.call(request(Message(topic="orders", key="k", id="first"), credential=fixed))
        offset = len(desk.broker.stored.get((desk.broker.topics["orders"]["id"], queue_of(b"k", 4)), ()))
        assert (result.code, result.id, result.queue, result.offset) == (Code.DUPLICATE, "first", 3, offset)
        assert result.error is None and result.retry_after_ms is None


def test_a_topic_without_a_window_has_no_id_checked_from_the_next_call_on(desk):
    client = desk.client()
    fixed = credential()
    client.call(request(Message(topic="orders", id="a"), credential=fixed))
    assert len(desk.broker.checked) == 1
    old = desk.store.get("topic", "orders")
    desk.store.put("topic", "orders", {**old.value, "id_window_ms": 0}, old.version)
    for _ in range(2):
        assert codes(client.call(request(Message(topic="orders", id="a"), credential=fixed))) == [Code.OK]
    assert len(desk.broker.checked) == 1


def test_assigned_ids_are_32_hex_characters_and_never_the_same(desk):
    client = desk.client()
    fixed = credential()
    ids = [
        r.id
        for _ in range(20)
        for r in client.call(request(*[Message(topic="orders", body=b"")] * 50, credential=fixed))
    ]
    assert len(set(ids)) == 1000 and all(len(shown) == 32 and int(shown, 16) for shown in ids)


def test_durability_is_the_topics_unless_the_call_asks_for_another(desk):
    client = desk.client()
    fixed = credential()
    for topic, asked, lane in (
        ("orders", None, 3),
        ("orders.fast", None, 1),
        ("orders", 1, 1),
        ("orders.fast", 2, 2),
        ("orders.fast", 4, 4),
    ):
        for _ in range(2):
            assert codes(client.call(request(Message(topic=topic), durability=asked, credential=fixed))) == [Code.OK]
            assert desk.broker.appends[-1][0] == lane


def test_a_call_over_both_durabilities_is_answered_in_order(desk):
    client = desk.client()
    fixed = credential()
    for _ in range(2):
        messages = [Message(topic=("orders", "orders.fast")[i % 2], id=f"m{i}") for i in range(10)]
        results = client.call(request(*messages, credential=fixed))
        assert [r.id for r in results] == [f"m{i}" for i in range(10)] and set(codes(results)) == {Code.OK}


@pytest.mark.parametrize(
    "faulty,code,word",
    [
        (Message(topic="pay", body=b"x" * 2049), Code.TOO_LARGE, "2048"),
        (Message(topic="a/b"), Code.INVALID, "topic"),
        (Message(topic="", body=b""), Code.INVALID, "topic"),
        (Message(topic="x" * 250), Code.INVALID, "topic"),
        (Message(topic=".."), Code.INVALID, "topic"),
        (Message(topic="other"), Code.FORBIDDEN, "other"),
        (Message(topic="orders.unknown"), Code.UNKNOWN_TOPIC, "orders.unknown"),
        (Message(topic="orders", id=""), Code.INVALID, "id"),
        (Message(topic="orders", id="i" * 65), Code.INVALID, "id"),
        (Message(topic="orders", tag="two words"), Code.INVALID, "tag"),
        (Message(topic="orders", deliver_at_ms=2**63 - 1), Code.INVALID, "deliver_at_ms"),
        (Message(topic="orders", deliver_at_ms=-1), Code.INVALID, "deliver_at_ms"),
        (Message(topic="orders", delay_ms=1, deliver_at_ms=1), Code.INVALID, "delay_ms"),
        (Message(topic="orders", properties={str(i): "v" for i in range(65)}), Code.INVALID, "properties"),
    ],
)  # fmt: skip
def test_a_faulty_message_is_refused_with_a_sentence_and_its_neighbours_are_stored(desk, faulty, code, word):
    client = desk.client()
    fixed = credential()
    for _ in range(2):
        results = client.call(
            request(Message(topic="orders", body=b"a"), faulty, Message(topic="orders", body=b"b"), credential=fixed)
        )
        assert codes(results) == [Code.OK, code, Code.OK]
        assert word in results[1].error


@pytest.mark.parametrize("bad", [
    {"secret": "wrong"}, {"app": "nobody"}, {"key_id": "k9"}, {"shift_ms": -301_000}, {"shift_ms": 301_000},
])  # fmt: skip
def test_a_forged_or_expired_credential_is_refused_whatever_was_cached_before(desk, bad):
    client = desk.client()
    assert codes(client.call(request(Message(topic="orders")))) == [Code.OK]
    results = client.call(request(Message(topic="orders"), Message(topic="pay"), credential=credential(**bad)))
    assert codes(results) == [Code.UNAUTHENTICATED] * 2


def test_a_revoked_key_a_withdrawn_grant_and_a_deleted_topic_count_at_once(desk):
    client, fixed = desk.client(), credential()
    for _ in range(2):
        assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    found = desk.store.get("topic", "orders")
    desk.store.delete("topic", "orders", found.version)
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.UNKNOWN_TOPIC]
    app = desk.store.get("application", "shop")
    desk.store.put("application", "shop", app.value | {"grants": []}, app.version)
    assert codes(client.call(request(Message(topic="pay"), credential=fixed))) == [Code.FORBIDDEN]
    app = desk.store.get("application", "shop")
    desk.store.put("application", "shop", app.value | {"keys": []}, app.version)
    assert codes(client.call(request(Message(topic="pay"), credential=fixed))) == [Code.UNAUTHENTICATED]


def test_a_familys_topics_are_sent_to_without_entries_of_their_own(desk):
    client, fixed = desk.client(), credential()
    desk.store.put("family", "orders.m.*", {"queues": 2, "durability": "memory"}, 0)
    for _ in range(3):
        assert codes(client.call(request(Message(topic="orders.m.a"), credential=fixed))) == [Code.OK]
        assert desk.broker.appends[-1][0] == 1
    assert desk.broker.topics["orders.m.a"]["queues"] == 2
    family = desk.store.get("family", "orders.m.*")
    desk.store.put("family", "orders.m.*", {"queues": 3, "durability": "fsync"}, family.version)
    assert codes(client.call(request(Message(topic="orders.m.a"), credential=fixed))) == [Code.OK]
    assert desk.broker.appends[-1][0] == 2
    assert desk.broker.topics["orders.m.a"]["queues"] == 3
    desk.store.delete("family", "orders.m.*", family.version + 1)
    assert codes(client.call(request(Message(topic="orders.m.a"), credential=fixed))) == [Code.UNKNOWN_TOPIC]


def test_a_topic_above_the_quota_is_refused_and_the_others_of_the_call_are_stored(desk):
    desk.store.put("family", "orders.m.*", {"queues": 2, "durability": "memory"}, 0)
    desk.broker.refused.add("orders.m.a")
    results = desk.client().call(request(*(Message(topic=name) for name in ("orders", "orders.m.a", "orders.m.b"))))
    assert codes(results) == [Code.OK, Code.QUOTA_EXCEEDED, Code.OK]
    assert "no more topics" in results[1].error


def test_a_change_of_something_else_voids_no_destination(desk):
    client, fixed = desk.client(), credential()
    for name in ("orders", "orders.fast", "pay"):
        assert codes(client.call(request(Message(topic=name), credential=fixed))) == [Code.OK]
    asked = desk.rpc.asked
    desk.store.put("topic", "another", {}, 0)
    desk.store.put("family", "others.*", {}, 0)
    desk.store.put("group", "readers", {}, 0)
    for name in ("orders", "orders.fast", "pay"):
        assert codes(client.call(request(Message(topic=name), credential=fixed))) == [Code.OK]
    assert desk.rpc.asked == asked
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls >= 2, "only the credential was looked at again, by one call"


def test_a_new_credential_finds_the_topics_that_others_made_known(desk):
    client = desk.client()
    for shift_ms in range(3):
        fixed = credential(shift_ms=-1_000 * shift_ms)
        for name in ("pay", "orders"):
            assert codes(client.call(request(Message(topic=name), credential=fixed))) == [Code.OK]
    assert desk.rpc.asked == 2
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls == 2, "one slow call a credential"


@pytest.mark.parametrize("grants, sent", [
    (["orders"], {"orders"}), (["orders*"], {"orders", "orders.fast"}), (["*"], {"orders", "orders.fast", "pay", "other"}),
    (["order", "orders.fast.*", "payment"], set()), (["nothing", "pay*", "orders.f*"], {"pay", "orders.fast"}), ([], set()),
])  # fmt: skip
def test_what_one_application_made_known_is_open_only_to_who_holds_a_grant(desk, grants, sent):
    everything = ApplicationDefinition("all", (Key("k2", SECRET, 0),), (Grant("send", "*"),))
    desk.store.put("application", "all", everything.to_value(), 0)
    app = desk.store.get("application", "shop")
    desk.store.put("application", "shop", app.value | {"grants": [["send", each] for each in grants]}, app.version)
    client, whole, narrow = desk.client(), credential(app="all", key_id="k2"), credential()
    for _ in range(2):
        for name in ("orders", "orders.fast", "pay", "other"):
            assert codes(client.call(request(Message(topic=name), credential=whole))) == [Code.OK]
            wanted = Code.OK if name in sent else Code.FORBIDDEN
            assert codes(client.call(request(Message(topic=name), credential=narrow))) == [wanted]


def test_one_append_in_a_thousand_topics_gives_each_message_its_own_place(desk):
    client, fixed = desk.client(), credential()
    desk.store.put("family", "orders.m.*", {"queues": 2}, 0)
    for number in range(3):
        messages = [Message(topic=f"orders.m.{i % 500}", body=b"%d-%d" % (number, i)) for i in range(1_000)]
        results = client.call(request(*messages, credential=fixed))
        for message, result in zip(messages, results, strict=True):
            topic_id = desk.broker.topics[message.topic]["id"]
            assert message.body in desk.broker.stored[(topic_id, result.queue)][result.offset][1]
    assert desk.broker.appends[-1][1] == 500, "a batch for each topic's queue"


def test_a_broker_that_does_not_answer_in_time_gives_timeout_and_the_connection_goes_on(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.go.clear()
    results = client.call(request(Message(topic="orders", id="late"), credential=fixed, timeout_ms=60))
    assert codes(results) == [Code.TIMEOUT] and results[0].id == "late"
    desk.broker.go.set()
    wait_until(lambda: desk.proxy.brokers.idle)
    for _ in range(3):
        (result,) = client.call(request(Message(topic="orders", id="next"), credential=fixed))
        assert (result.code, result.id) == (Code.OK, "next")


def test_a_broken_link_makes_what_was_sent_unknown_and_refuses_what_comes_until_it_is_back(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.go.clear()
    asking = gevent.spawn(client.call, request(Message(topic="orders"), credential=fixed))
    wait_until(lambda: len(desk.broker.appends) == 2)
    desk.broker.break_links()
    assert codes(asking.get(timeout=3)) == [Code.TIMEOUT]
    desk.broker.go.set()
    wait_until(lambda: desk.proxy.brokers.connected)
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]


def test_without_a_broker_a_send_is_refused_at_once_as_unavailable(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.stop()
    wait_until(lambda: not any(lanes.only.link for lanes in desk.proxy.brokers.lanes))
    (result,) = client.call(request(Message(topic="orders"), credential=fixed))
    assert result.code == Code.UNAVAILABLE and result.retry_after_ms > 0


def test_another_log_behind_the_link_makes_every_topic_id_be_asked_for_anew(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.log_id, desk.broker.topics = "b" * 32, {"something": {"id": 1, "queues": 1}}
    desk.broker.break_links()
    wait_until(lambda: desk.broker.greeted["b" * 32] == len(LANES) and desk.proxy.brokers.connected)
    asked = desk.rpc.asked
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    assert desk.rpc.asked == asked + 1
    assert any(topic_id == desk.broker.topics["orders"]["id"] for topic_id, _ in desk.broker.stored)


def test_another_start_of_the_engine_makes_every_topic_id_be_asked_for_anew(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    before = desk.broker.topics["orders"]["id"]
    desk.broker.epoch, desk.broker.topics = "2", {"chat": {"id": before, "queues": 1}}
    desk.broker.break_links()
    wait_until(lambda: desk.broker.greeted["2"] == len(LANES) and desk.proxy.brokers.connected)
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    after = desk.broker.topics["orders"]["id"]
    assert after != before and any(topic_id == after for topic_id, _ in desk.broker.stored)


def test_an_id_that_the_engine_does_not_know_is_unavailable_once_and_asked_for_anew(desk):
    client, fixed = desk.client(), credential()
    calls = [request(Message(topic=name), credential=fixed) for name in ("orders", "orders.fast")]
    assert [codes(client.call(call)) for call in calls] == [[Code.OK], [Code.OK]]
    lost = desk.broker.topics.pop("orders")["id"]
    desk.broker.topics["other"] = {"id": 7, "queues": 1}
    desk.broker.unknown_topics.add(lost)
    asked = desk.rpc.asked
    (result,) = client.call(calls[0])
    assert result.code == Code.UNAVAILABLE and result.retry_after_ms > 0, "the topic is defined: a retry may succeed"
    assert [codes(client.call(call)) for call in calls] == [[Code.OK], [Code.OK]]
    assert desk.rpc.asked == asked + 1, "the other topic keeps its id"
    assert desk.broker.topics["orders"]["id"] != lost


def test_an_id_that_was_answered_before_the_engine_started_again_is_not_used(desk, monkeypatch):
    client, fixed = desk.client(), credential()
    answer = desk.rpc.call

    def restart(op, payload, timeout):
        given = answer(op, payload, timeout)
        monkeypatch.setattr(desk.rpc, "call", answer)
        desk.broker.epoch, desk.broker.topics = "2", {"chat": {"id": 1, "queues": 4}}
        desk.broker.break_links()
        wait_until(lambda: desk.broker.greeted["2"] == len(LANES) and desk.proxy.brokers.connected)
        return given

    monkeypatch.setattr(desk.rpc, "call", restart)
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    assert {topic_id for topic_id, _ in desk.broker.stored} == {desk.broker.topics["orders"]["id"]}


def test_a_message_that_comes_back_under_its_assigned_id_is_stored_once(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.go.clear()
    (lost,) = client.call(request(Message(topic="orders", body=b"pay"), credential=fixed, timeout_ms=50))
    assert lost.code == Code.TIMEOUT
    again = request(Message(topic="orders", body=b"pay", id=lost.id), credential=fixed, timeout_ms=50)
    assert codes(client.call(again)) == [Code.TIMEOUT], "its first copy is on its way: whether it is stored is unknown"
    desk.broker.go.set()
    (found,) = client.call(request(Message(topic="orders", body=b"pay", id=lost.id), credential=fixed))
    assert (found.code, found.id) == (Code.DUPLICATE, lost.id)
    copies = [(queue, run) for (_, queue), run in desk.broker.stored.items() for _, body in run if b"pay" in body]
    assert len(copies) == 1 and copies[0][0] == found.queue and b"pay" in copies[0][1][found.offset][1]


def test_a_message_that_was_not_stored_is_sent_and_checked_under_its_assigned_id(desk):
    client, fixed = desk.client(), credential()
    (first,) = client.call(request(Message(topic="orders"), credential=fixed))
    never = first.id[:-8] + "ffffffff"
    checked = len(desk.broker.checked)
    assert codes(client.call(request(Message(topic="orders", id=never), credential=fixed))) == [Code.OK]
    assert len(desk.broker.checked) == checked + 1


def test_an_id_that_was_assigned_while_the_clock_was_hours_ahead_is_looked_up_when_the_clock_is_right_again(desk):
    client, fixed = desk.client(), credential()
    (first,) = client.call(request(Message(topic="orders"), credential=fixed))
    ahead = f"{int(first.id[:12], 16) + 20 * 3_600_000:012x}{first.id[12:-8]}ffffffff"
    asked = desk.rpc.asked
    assert codes(client.call(request(Message(topic="orders", id=ahead), credential=fixed))) == [Code.OK]
    assert desk.rpc.asked == asked + 1


@pytest.mark.parametrize("shown", ["0190a1b2c3d47abc8def0123456789ab", "ff" * 16, "order-1"])
def test_ids_of_other_makers_are_not_looked_up(desk, shown):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    asked = desk.rpc.asked
    assert codes(client.call(request(Message(topic="orders", id=shown), credential=fixed))) == [Code.OK]
    assert desk.rpc.asked == asked


def test_a_stopping_proxy_finishes_what_it_took_and_tells_the_rest_to_go_elsewhere(desk):
    first, second, fixed = desk.client(), desk.client(), credential()
    for client in (first, second):
        assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    desk.broker.go.clear()
    asking = gevent.spawn(first.call, request(Message(topic="orders"), credential=fixed))
    wait_until(lambda: len(desk.broker.appends) == 3)
    stopping = gevent.spawn(desk.proxy.stop)
    wait_until(lambda: desk.proxy.service.closing)
    assert codes(second.call(request(Message(topic="orders"), credential=fixed))) == [Code.SHUTTING_DOWN]
    desk.broker.go.set()
    assert codes(asking.get(timeout=3)) == [Code.OK]
    stopping.join(timeout=6)


def test_bytes_that_are_no_call_and_unknown_methods_get_an_exception_and_the_connection_lives(desk):
    client = desk.client()
    for frame in (
        contract.encode_call("send", 3, request(Message(topic="orders")))[:-1] + b"\x63",
        b"\x80\x01\x00\x01\x00\x00\x00\x04pull\x00\x00\x00\x01\x00",
    ):
        client.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = client._read(int.from_bytes(client._read(4), "big"))
        assert answer[:4] == b"\x80\x01\x00\x03"
    assert codes(client.call(request(Message(topic="orders")))) == [Code.OK]


def test_answers_of_the_hot_path_are_the_references_byte_for_byte(desk, monkeypatch):
    if desk.proxy.front is None:
        pytest.skip("only one path in this run")
    other = Desk(False, monkeypatch)
    fixed = credential()
    hot, slow = desk.client(), other.client()
    calls = [request(Message(topic="orders", id=f"id-{i}", key=f"k{i}", body=os.urandom(i)),
                     Message(topic="orders.fast", id="z"), credential=fixed, durability=d)
             for i in range(5) for d in (1, 2)]  # fmt: skip
    for call in calls:
        assert hot.call_bytes(call) == slow.call_bytes(call)
    assert desk.proxy.front.hot_calls >= 8
    for broker in (desk.broker, other.broker):
        broker.code = Code.OVERLOADED
    for call in calls:
        assert hot.call_bytes(call) == slow.call_bytes(call)
    for broker in (desk.broker, other.broker):
        broker.code, broker.batch_code = 0, Code.UNKNOWN_TOPIC
    for call in calls:
        assert hot.call_bytes(call) == slow.call_bytes(call)
    other.close()


def test_durability_values_of_the_contract_are_those_of_the_lanes():
    assert (Durability.MEMORY, Durability.FSYNC) == (1, 2)


def test_a_fresh_proxy_takes_a_call_of_the_largest_size_as_a_whole(desk):
    batch = [Message(topic="orders", body=bytes(16_000)) for _ in range(1000)]
    assert set(codes(desk.client().call(request(*batch, timeout_ms=20_000)))) == {Code.OK}
