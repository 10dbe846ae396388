"""Requests and replies through a producer proxy, on the hot path and on the reference alone; the test plays the rest of the cluster."""

import random

import gevent
import pytest

import producer_proxy.proxy as proxy_module
from common import contract
from common.contract import Code, Message
from common.keyhash import queue_of
from common.reply_token import ReplyToken, ReplyTokens, bind_token, reply_key
from engine.link import layout
from tests.services.fake_broker import KEY, wait_until
from tests.unit.producer_proxy.send.desk import Desk, Rpc, codes, credential, request
from tests.unit.producer_proxy.test_overload import change

TOKEN_SIZE = 40


class ReplyRpc(Rpc):
    """The rare operations; those of request-reply wait for the test."""

    def __init__(self, broker):
        super().__init__(broker)
        self.open, self.told = [], []

    def attend(self, on_up, on_unasked):
        self.on_unasked = on_unasked
        on_up()

    def send(self, op, payload, callback):
        if op not in (layout.LISTEN, layout.REPLY, layout.OUTCOME):
            super().send(op, payload, callback)
        self.open.append((op, payload, callback))

    def tell(self, op, payload):
        self.told.append((op, *layout.FORWARDED_BODY.unpack(payload)))

    def wait_for(self, op):
        """(payload, callback) of the next question of that kind."""
        wait_until(lambda: any(each[0] == op for each in self.open))
        found = next(each for each in self.open if each[0] == op)
        self.open.remove(found)
        return found[1:]


def make(hot, monkeypatch):
    if hot and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    with monkeypatch.context() as patch:
        return Site(hot, patch)


class Site(Desk):
    def __init__(self, hot, monkeypatch):
        super().__init__(hot, monkeypatch, ReplyRpc)
        self.fixed = credential()
        self.tokens = ReplyTokens(KEY)

    def send(self, client, *messages, **fields):
        return client.call(request(*messages, credential=self.fixed, **fields))

    def warm(self, client):
        """Have the hot path know the credential and the topics."""
        for topic in ("orders", "orders.fast", "pay"):
            assert codes(self.send(client, Message(topic=topic))) == [Code.OK]
        self.stored_before = self.records()
        return client

    def records(self):
        return [(place, each) for place, run in self.broker.stored.items() for each in run]

    def request_record(self):
        """(place, id16, message, token) of the one request that is stored."""
        wait_until(lambda: len(self.records()) > len(self.stored_before))
        (place, (id16, body)) = next(each for each in self.records() if each not in self.stored_before)
        return place, id16, body[:-TOKEN_SIZE], body[-TOKEN_SIZE:]

    def forward(self, token, reply, code=layout.OK, number=9):
        self.rpc.on_unasked(layout.FORWARD_HEAD.pack(number, code) + token + reply)


@pytest.fixture(params=["hot", "slow"])
def site(request, monkeypatch):
    made = make(request.param == "hot", monkeypatch)
    yield made
    made.close()


def asking(site, client, message, wait_ms=5_000, **fields):
    return gevent.spawn(site.send, client, message, reply_wait_ms=wait_ms, **fields)


REPLY = Message(topic="", body=b"answer", properties={"a": "b"})


@pytest.mark.parametrize("topic", ["orders", "orders.fast"])
def test_a_request_is_stored_with_its_token_behind_it_and_answered_by_its_reply(site, topic):
    client = site.warm(site.client())
    sent = Message(topic=topic, body=b"question", key="k")
    call = asking(site, client, sent)
    (_, queue), id16, encoded, token = site.request_record()
    assert encoded == contract.encode_struct(sent) and queue == queue_of(b"k", 4)
    assert site.tokens.check(token) is not None
    assert not call.ready()
    site.forward(token, contract.encode_struct(REPLY))
    (result,) = call.get(timeout=3)
    assert (result.code, result.reply, result.error) == (Code.OK, REPLY, None)
    assert (result.id, result.queue) == (id16.hex(), queue) and result.offset is not None
    assert site.rpc.told == [(layout.FORWARDED, 9, Code.OK)]
    site.forward(token, contract.encode_struct(REPLY))
    assert site.rpc.told[-1] == (layout.FORWARDED, 9, Code.DUPLICATE)
    assert codes(site.send(client, Message(topic=topic))) == [Code.OK], "the connection goes on"


def test_the_hot_path_takes_requests_and_replies_from_the_second_call_on(monkeypatch):
    site = make(True, monkeypatch)
    try:
        client, replier = site.client(), site.client()
        for number in range(3):
            site.stored_before = site.records()
            call = asking(site, client, Message(topic="orders"))
            token = site.request_record()[3]
            replying = gevent.spawn(site.send, replier, Message(topic="", body=b"r", reply_to=token))
            payload, answer = site.rpc.wait_for(layout.REPLY)
            site.forward(token, payload[TOKEN_SIZE:])
            answer(Code.OK, b"")
            assert codes(call.get(timeout=3)) == codes(replying.get(timeout=3)) == [Code.OK]
            assert site.proxy.front.hot_calls == 1 + 2 * number, "the first one taught the path who asks"
    finally:
        site.close()


@pytest.mark.parametrize("code", [Code.NO_CONSUMER, Code.NO_REPLY, Code.CONSUMER_FAILED])
def test_without_a_reply_the_answer_says_why_and_where_the_request_lies(site, code):
    client = site.warm(site.client())
    call = asking(site, client, Message(topic="orders"), wait_ms=30)
    token = site.request_record()[3]
    payload, answer = site.rpc.wait_for(layout.OUTCOME)
    assert payload == token
    answer(Code.OK, layout.U16.pack(code))
    (result,) = call.get(timeout=3)
    assert (result.code, result.reply) == (code, None)
    assert result.error and result.offset is not None and result.retry_after_ms is None


def test_a_consumer_that_fails_is_told_at_once(site):
    client = site.warm(site.client())
    call = asking(site, client, Message(topic="orders"), wait_ms=60_000)
    site.forward(site.request_record()[3], b"", Code.CONSUMER_FAILED, 0)
    assert codes(call.get(timeout=3)) == [Code.CONSUMER_FAILED]


def test_a_request_that_the_broker_refuses_or_does_not_answer_waits_for_nothing(site):
    client = site.warm(site.client())
    site.broker.code = Code.TOO_LARGE
    (result,) = site.send(client, Message(topic="orders", id="mine"), reply_wait_ms=60_000)
    assert (result.code, result.id, result.queue, result.offset) == (Code.TOO_LARGE, "mine", None, None)
    site.broker.code = 0
    site.broker.go.clear()
    call = asking(site, client, Message(topic="orders"), wait_ms=60_000, timeout_ms=50)
    (result,) = call.get(timeout=3)
    assert (result.code, result.offset) == (Code.TIMEOUT, None) and result.error
    site.broker.go.set()
    assert site.proxy.requests.is_idle


def test_a_broken_link_leaves_a_request_in_doubt_and_none_takes_another(site):
    client = site.warm(site.client())
    site.broker.go.clear()
    call = asking(site, client, Message(topic="orders"))
    wait_until(lambda: len(site.broker.appends) == 4)
    site.broker.stop()
    assert codes(call.get(timeout=3)) == [Code.TIMEOUT]
    (result,) = site.send(client, Message(topic="orders"), reply_wait_ms=5_000)
    assert (result.code, result.retry_after_ms) == (Code.UNAVAILABLE, 200)


def test_requests_are_batches_of_their_own_among_plain_messages_and_keep_their_place(site):
    clients = [site.warm(site.client())] + [site.client() for _ in range(6)]
    site.broker.go.clear()
    asked = len(site.broker.appends)
    calls = []
    for number, client in enumerate(clients):
        fields = {"reply_wait_ms": 300} if number in (3, 5) else {}
        message = Message(topic="orders.fast", key="k", body=b"%d" % number)
        calls.append(gevent.spawn(site.send, client, message, **fields))
        wait_until(lambda taken=number + 1: site.proxy.brokers.lanes[0].only.waiting == taken)
    site.broker.go.set()
    gevent.joinall(calls, timeout=3)
    assert site.broker.appends[asked:] == [(layout.MEMORY, 1), (layout.MEMORY, 5)], "1 2 | 3 | 4 | 5 | 6 behind 0"
    run = site.broker.stored[site.broker.topics["orders.fast"]["id"], queue_of(b"k", 4)][-7:]
    bodies = [contract.decode_struct(Message, body).body for _, body in run]
    assert bodies == [b"%d" % number for number in range(7)]
    lengths = [len(body) for _, body in run]
    assert [length - min(lengths) for length in lengths] == [0, 0, 0, TOKEN_SIZE, 0, TOKEN_SIZE, 0]


def test_a_request_under_its_own_id_is_checked_and_a_copy_shares_the_outcome_of_the_first(site):
    client, other = site.warm(site.client()), site.client()
    mine = Message(topic="orders", id="mine", key="k")
    call = asking(site, client, mine)
    place, id16, _, token = site.request_record()
    assert id16 is None and site.broker.checked[-1][2] == 600_000
    site.broker.batch_code, site.broker.first_queue = Code.DUPLICATE, place[1]
    site.broker.stored[place].pop()  # the fake names the end of the queue as the first copy's offset
    copy = asking(site, other, mine)
    wait_until(lambda: len(site.broker.checked) == 2)
    gevent.sleep(0.02)
    site.forward(token, contract.encode_struct(REPLY))
    results = [each.get(timeout=3)[0] for each in (call, copy)]
    assert results[0] == results[1] and results[0].reply == REPLY
    (late,) = site.send(other, mine, reply_wait_ms=5_000)
    assert late == results[0], "the reply is kept until the request's deadline"


def test_a_copy_of_a_request_that_was_not_asked_here_is_a_duplicate(site):
    client = site.warm(site.client())
    site.broker.batch_code, site.broker.first_queue = Code.DUPLICATE, 3
    (result,) = site.send(client, Message(topic="orders", id="mine"), reply_wait_ms=60_000)
    assert (result.code, result.id, result.queue, result.reply, result.error) == (Code.DUPLICATE, "mine", 3, None, None)


def test_an_asker_that_hangs_up_is_found_gone(site):
    client = site.warm(site.client())
    asking(site, client, Message(topic="orders"), wait_ms=400)
    token = site.request_record()[3]
    client.sock.close()
    wait_until(lambda: site.proxy.requests.is_idle)
    site.forward(token, contract.encode_struct(REPLY))
    assert site.rpc.told == [(layout.FORWARDED, 9, Code.STALE_RECEIPT)]


def test_a_proxy_that_stops_answers_those_who_wait(site, monkeypatch):
    monkeypatch.setattr(proxy_module, "DRAIN_S", 0.05)
    client = site.warm(site.client())
    call = asking(site, client, Message(topic="orders"), wait_ms=60_000)
    site.request_record()
    gevent.sleep(0.02)
    site.proxy.stop()
    (result,) = call.get(timeout=3)
    assert result.code == Code.TIMEOUT and "stopping" in result.error


# -- the replier's side


@pytest.mark.parametrize("code", [Code.OK, Code.DUPLICATE, Code.STALE_RECEIPT, Code.UNAVAILABLE, Code.TIMEOUT])
def test_a_reply_leaves_without_the_field_that_led_it_and_its_replier_hears_how_it_went(site, code):
    client = site.warm(site.client())
    token = site.tokens.make(ReplyToken(1, 7, 1 << 60))
    given = bind_token(token, reply_key(KEY, "shop"))
    reply = Message(topic="", body=b"answer", properties={"a": "b"}, id="r1", reply_to=given)
    call = gevent.spawn(site.send, client, reply)
    payload, answer = site.rpc.wait_for(layout.REPLY)
    reply.reply_to = None
    assert payload == token + contract.encode_struct(reply)
    answer(code, b"")
    (result,) = call.get(timeout=3)
    assert (result.code, result.id, result.queue) == (code, "r1", None)
    assert (result.error is None) == (code in (Code.OK, Code.DUPLICATE))
    assert result.retry_after_ms == (200 if code == Code.UNAVAILABLE else None)


def test_a_reply_that_nobody_answers_ends_at_the_calls_timeout(site):
    client = site.warm(site.client())
    token = site.tokens.make(ReplyToken(1, 7, 1 << 60))
    (result,) = site.send(client, Message(topic="", reply_to=token), timeout_ms=40)
    assert result.code == Code.TIMEOUT


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"reply_to": b"x" * 40}, "not a reply_token"),
        ({"reply_to": b""}, "not a reply_token"),
        ({"reply_to": b"x" * 40, "delay_ms": 5}, "neither be delayed"),
        ({"reply_to": b"x" * 40, "operation": 1, "id": "a"}, "CANCEL"),
    ],
)
def test_what_cannot_be_a_reply_is_invalid(site, fields, word):
    client = site.warm(site.client())
    (result,) = site.send(client, Message(topic="", **fields))
    assert result.code == Code.INVALID and word.replace("neither be", "can be neither") in result.error


def test_the_token_of_another_application_is_invalid_by_either_path(site):
    client = site.warm(site.client())
    stored = site.tokens.make(ReplyToken(1, 7, 1 << 60))
    (result,) = site.send(client, Message(topic="", reply_to=bind_token(stored, reply_key(KEY, "bank"))))
    assert (result.code, "that this application has pulled" in result.error) == (Code.INVALID, True)
    assert [op for op, *_ in site.rpc.open if op == layout.REPLY] == []


def test_replies_that_an_operator_switched_off_are_refused_from_the_next_call_on(site):
    client = site.warm(site.client())
    change(site, "setting", "gate", features_off=["reply"])
    token = site.tokens.make(ReplyToken(1, 7, 1 << 60))
    (result,) = site.send(client, Message(topic="", reply_to=token))
    assert result.code == Code.OVERLOADED


# -- both paths beside each other


TRIES = 4


def test_both_paths_answer_with_equal_bytes_whatever_is_asked(monkeypatch):
    sites = [make(hot, monkeypatch) for hot in (True, False)]
    try:
        clients = [site.warm(site.client()) for site in sites]
        for seed in range(120):
            for _ in range(TRIES):  # calls wait for 20 ms: a pause of the machine changes one answer, and not again
                both = zip(sites, clients, strict=True)
                answers = [_drawn(random.Random(seed), site, client) for site, client in both]
                if answers[0] == answers[1]:
                    break
            assert answers[0] == answers[1], f"seed {seed}"
        assert sites[0].proxy.front.hot_calls > 40
    finally:
        for site in sites:
            site.close()


def _drawn(draw, site, client):
    """One call of any kind, played to its end; the bytes of its answer, without the id that was assigned."""
    site.broker.batch_code = draw.choice([Code.OK] * 4 + [Code.DUPLICATE, Code.INVALID, Code.UNAVAILABLE])
    token = site.tokens.make(ReplyToken(draw.randrange(9), 7, draw.choice([1 << 60, 5])))
    bound = bind_token(token, reply_key(KEY, draw.choice(["shop"] * 3 + ["bank"])))
    message = Message(
        topic=draw.choice(["orders", "orders.fast"] * 4 + ["pay", "nowhere", ""]),
        key=draw.choice(["k", ""]),
        body=bytes(draw.choice([0, 1, 200, 3000])),
        id=draw.choice([None, "id", "é" * 30]),
        tag=draw.choice([None, "t"]),
        properties=draw.choice([None, {}, {"a": "ü"}]),
        reply_to=draw.choice([None] * 5 + [token, bound, bound, token[:-1] + b"x", b""]),
        operation=draw.choice([None] * 9 + [1]),
        delay_ms=draw.choice([None] * 9 + [5]),
    )
    wait_ms = draw.choice([None, None, 300_001, -1] if message.reply_to else [20, 20, 20, 20, 20, None, 300_001, -1])
    outcome, reply = draw.choice([Code.NO_CONSUMER, Code.NO_REPLY, Code.OK, Code.OK]), contract.encode_struct(REPLY)
    site.stored_before = site.records()
    del site.rpc.open[:]
    sent = request(message, credential=site.fixed, reply_wait_ms=wait_ms, durability=draw.choice([None, 1, 2]))
    call = gevent.spawn(client.call_bytes, sent)
    while not call.ready():
        gevent.sleep(0.001)
        for op, _, answer in site.rpc.open[:]:
            site.rpc.open.clear()
            if op == layout.OUTCOME:
                answer(layout.OK, layout.U16.pack(outcome if outcome else Code.NO_REPLY))
            elif op == layout.REPLY:
                answer(Code.OK if outcome == Code.OK else Code.DUPLICATE, b"")
        fresh = [each for each in site.records() if each not in site.stored_before]
        if fresh and outcome == Code.OK and wait_ms == 20:
            site.forward(fresh[0][1][1][-TOKEN_SIZE:], reply)
    frame = call.get()
    (result,) = contract.decode_reply(frame).results
    if result.id is not None and message.id is None:
        assert len(result.id) == 32
        frame = frame.replace(result.id.encode(), b"?" * 32)
    return frame[:12] + frame[16:]  # without the call's number
