"""Request-reply with real processes: the asker at one producer proxy, the replier at another."""

import contextlib
import threading
import time

import pytest
from thriftpy2.transport import TTransportException

from common.contract import Ack, Code, Message, Verdict
from tests.e2e.pull_parts import cut
from tests.e2e.request_parts import TOPIC, RequestSite, Worker
from tests.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = RequestSite(tmp_path_factory.mktemp("requests"))
    yield made
    made.close()


@pytest.fixture
def worker(site):
    """Makes workers that end with the test."""
    made = []

    def make(behave=None, group="billing"):
        made.append(site.worker(behave, group))
        return made[-1]

    yield make
    for each in made:
        each.close()


def metric(process, name):
    page = process.page("/metrics")[1]
    return float(next(line.split()[1] for line in page.splitlines() if line.startswith(name + " ")))


def test_a_reply_finds_its_way_back_through_another_proxy(site, worker):
    replier = worker()
    result = site.sender(site.ask).request(b"six times seven", properties={"a": "b"}, key="k")
    assert (result.code, result.reply.body) == (Code.OK, b"re: six times seven")
    assert result.reply.reply_to is None
    (delivery,) = replier.seen
    assert (result.id, result.queue, result.offset) == (delivery.id, delivery.queue, delivery.offset)
    assert len(delivery.reply_token) == 40 and delivery.reply_by_ms > delivery.stored_at_ms
    until(lambda: replier.results, "the replier is answered")
    assert replier.results[0].code == Code.OK


def test_a_message_without_a_request_carries_no_token(site, worker):
    consumer = worker(lambda worker, delivery: [Ack(receipt=delivery.receipt)])
    (sent,) = site.sender(site.ask).send(Message(topic=TOPIC, body=b"plain"))
    until(lambda: consumer.seen, "the message arrives")
    (delivery,) = consumer.seen
    assert (sent.code, delivery.reply_token, delivery.reply_by_ms) == (Code.OK, None, None)


def test_many_requests_at_once_get_each_its_own_reply(site, worker):
    worker(), worker()
    answers = {}

    def ask(name):
        sender = site.sender(site.ask)
        for number in range(20):
            answers[name, number] = sender.request(b"%d-%d" % (name, number)).reply.body

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {(name, number): b"re: %d-%d" % (name, number) for name in range(5) for number in range(20)}


def test_nobody_pulls_and_the_request_is_not_handed_out_later(site, worker):
    expired = metric(site.engine, "penstock_engine_expired_requests_total")
    began = time.monotonic()
    result = site.sender(site.ask).request(wait_ms=300)
    assert (result.code, result.reply) == (Code.NO_CONSUMER, None)
    assert result.offset is not None and 0.3 <= time.monotonic() - began < 2
    late = worker(lambda worker, delivery: [Ack(receipt=delivery.receipt)])
    site.sender(site.ask).send(Message(topic=TOPIC, body=b"behind it"))
    until(lambda: late.seen, "what lies behind the request arrives")
    until(lambda: metric(site.engine, "penstock_engine_expired_requests_total") > expired, "it was passed over")
    assert [delivery.message.body for delivery in late.seen] == [b"behind it"]


def test_a_consumer_that_is_silent_is_told_apart_and_its_late_reply_reaches_nobody(site, worker):
    held = worker(lambda worker, delivery: None)
    assert site.sender(site.ask).request(wait_ms=300).code == Code.NO_REPLY
    (delivery,) = held.seen
    result = held.sender.reply(delivery.reply_token, b"too late")
    assert (result.code, result.reply) == (Code.STALE_RECEIPT, None)
    # The proxy that has waited tells: the other one's clock may differ.
    until(lambda: metric(site.ask, "penstock_producer_late_replies_total") >= 1, "it is counted")
    held.client.pull(group="billing", max_messages=0, acks=[Ack(receipt=delivery.receipt)])


def test_a_consumer_that_rejects_is_told_at_once_and_the_request_becomes_a_dead_letter(site, worker):
    refuser = worker(
        lambda worker, delivery: [Ack(receipt=delivery.receipt, verdict=Verdict.REJECT, reason="no stock")]
    )
    began = time.monotonic()
    result = site.sender(site.ask).request(b"refused", wait_ms=10_000)
    assert (result.code, result.reply) == (Code.CONSUMER_FAILED, None)
    assert time.monotonic() - began < 5
    refuser.close()
    letters = refuser.client.pull(group="billing", topics=["_dlq.billing"], wait_ms=5_000).deliveries
    assert [letter.message.body for letter in letters] == [b"refused"]
    assert letters[0].reply_token is None


def test_a_request_that_is_not_acknowledged_is_not_handed_out_again_after_its_deadline(site, worker):
    def give_back(worker, delivery):
        return [Ack(receipt=delivery.receipt, verdict=Verdict.RETRY, delay_ms=400)]

    busy = worker(give_back)
    assert site.sender(site.ask).request(b"once", wait_ms=200).code == Code.NO_REPLY
    site.sender(site.ask).send(Message(topic=TOPIC, body=b"later"))
    until(
        lambda: any(each.message.body == b"later" and each.attempt > 1 for each in busy.seen), "plain ones come again"
    )
    assert [each.attempt for each in busy.seen if each.message.body == b"once"] == [1]
    busy.close()
    drain = worker(lambda worker, delivery: [Ack(receipt=delivery.receipt)])
    until(lambda: drain.seen, "the plain one is settled")


def test_a_reply_is_taken_once_and_a_forged_token_never(site, worker):
    results = []

    def twice(worker, delivery):
        results.append(worker.sender.reply(delivery.reply_token, b"first"))
        results.append(worker.sender.reply(delivery.reply_token, b"second"))
        forged = delivery.reply_token[:-1] + bytes([delivery.reply_token[-1] ^ 1])
        results.append(worker.sender.reply(forged))
        results.append(worker.sender.reply(b"short"))
        later = bytearray(delivery.reply_token)
        later[20] ^= 1
        results.append(worker.sender.reply(bytes(later)))
        results.append(site.sender(site.answer, "asker").reply(delivery.reply_token))  # which may send everywhere
        return [Ack(receipt=delivery.receipt)]

    worker(twice)
    assert site.sender(site.ask).request().reply.body == b"first"
    until(lambda: len(results) == 6, "all replies are answered")
    assert [result.code for result in results] == [
        Code.OK,
        Code.DUPLICATE,
        Code.INVALID,
        Code.INVALID,
        Code.INVALID,
        Code.INVALID,
    ]
    assert [result.error is None for result in results] == [True, True, False, False, False, False]


def test_a_reply_to_an_asker_that_hung_up_is_refused(site, worker):
    held = worker(lambda worker, delivery: [Ack(receipt=delivery.receipt)])
    asker = site.sender(site.ask)

    def ask_and_lose():
        with contextlib.suppress(TTransportException, OSError):
            asker.request()

    asking = threading.Thread(target=ask_and_lose, daemon=True)
    asking.start()
    until(lambda: held.seen, "the request arrives")
    cut(asker)
    asking.join(10)

    def refused():
        return held.sender.reply(held.seen[0].reply_token).code == Code.STALE_RECEIPT

    until(refused, "the reply finds nobody")


def test_replies_and_messages_in_one_send_are_answered_in_order(site, worker):
    results = []

    def mixed(worker, delivery):
        results.extend(
            worker.sender.send(
                Message(topic=TOPIC, body=b"plain"),
                Message(topic="", reply_to=delivery.reply_token, body=b"mixed"),
                Message(topic="", reply_to=b"x" * 40),
            )
        )
        return [Ack(receipt=delivery.receipt)]

    worker(
        lambda worker, delivery: mixed(worker, delivery) if delivery.reply_token else [Ack(receipt=delivery.receipt)]
    )
    assert site.sender(site.ask).request().reply.body == b"mixed"
    until(lambda: results, "the send is answered")
    assert [result.code for result in results] == [Code.FORBIDDEN, Code.OK, Code.INVALID]


def test_a_request_that_is_sent_again_under_its_id_is_executed_once_and_has_one_outcome(site, worker):
    may_reply = threading.Event()

    def wait_then_reply(worker, delivery):
        may_reply.wait(10)
        return Worker.echo(worker, delivery)

    replier = worker(wait_then_reply)
    results = []
    askers = [site.sender(site.ask) for _ in range(2)]
    asking = [
        threading.Thread(target=lambda asker=asker: results.append(asker.request(b"pay", id="order-7")), daemon=True)
        for asker in askers
    ]
    for thread in asking:
        thread.start()
        until(lambda: replier.seen, "the first copy is taken")
    until(lambda: metric(site.engine, "penstock_engine_duplicates_total") > 0, "the second copy was found to be one")
    may_reply.set()
    for thread in asking:
        thread.join(10)
    again = askers[0].request(b"pay", id="order-7")
    assert [each.code for each in (*results, again)] == [Code.OK] * 3
    assert results[0] == results[1] == again and again.reply.body == b"re: pay"
    elsewhere = site.sender(site.answer).request(b"pay", id="order-7")
    assert (elsewhere.code, elsewhere.reply) == (Code.DUPLICATE, None)
    assert (elsewhere.queue, elsewhere.offset) == (again.queue, again.offset)
    assert len(replier.seen) == 1


@pytest.mark.parametrize(
    ("message", "wait_ms", "word"),
    [
        ({"delay_ms": 5}, 100, "reply_wait_ms"),
        ({"reply_to": b"x"}, 100, "reply_wait_ms"),
        ({"operation": 1, "id": "a"}, 100, "CANCEL"),
        ({}, 300_001, "reply_wait_ms"),
        ({}, -1, "reply_wait_ms"),
    ],
)
def test_a_request_that_cannot_be_one_is_refused_with_the_fields_name(site, message, wait_ms, word):
    result = site.sender(site.ask).request(wait_ms=wait_ms, **message)
    assert result.code == Code.INVALID and word in result.error


def test_an_unknown_topic_and_one_without_grant_are_refused_as_for_any_send(site):
    assert site.sender(site.ask).request(topic="nowhere").code == Code.UNKNOWN_TOPIC
    assert site.sender(site.ask, "worker").request().code == Code.FORBIDDEN


def test_a_reply_arrives_although_the_engine_was_killed_after_the_request_was_taken(site, worker):
    may_reply = threading.Event()

    def wait_then_reply(worker, delivery):
        may_reply.wait(10)
        # The engine comes back with what was not written of the progress, so others may come again, too.
        on_its_way = (Code.UNAVAILABLE, Code.TIMEOUT)
        until(lambda: worker.sender.reply(delivery.reply_token).code not in on_its_way, "the reply is taken")

    held = worker(wait_then_reply)
    answers = []
    asker = site.sender(site.ask)
    asking = threading.Thread(target=lambda: answers.append(asker.request(wait_ms=15_000, topic=TOPIC)), daemon=True)
    asking.start()
    until(lambda: held.seen, "the request is taken")
    site.engine.kill()
    site.start_engine()
    may_reply.set()
    asking.join(20)
    assert [(answer.code, answer.reply.body) for answer in answers] == [(Code.OK, b"answer")]


def test_a_reply_to_a_proxy_that_was_killed_is_refused_for_now(site, worker):
    held = worker(lambda worker, delivery: [Ack(receipt=delivery.receipt)])
    doomed = site.producer_proxy()
    asker = site.sender(doomed)

    def ask_and_lose():
        with contextlib.suppress(TTransportException, OSError):
            asker.request(b"doomed", wait_ms=10_000)

    asking = threading.Thread(target=ask_and_lose, daemon=True)
    asking.start()
    until(lambda: [each for each in held.seen if each.message.body == b"doomed"], "the request is taken")
    doomed.kill()
    asking.join(10)
    until(
        lambda: held.sender.reply(held.seen[-1].reply_token).code == Code.UNAVAILABLE,
        "the replier hears that nobody is there",
    )
