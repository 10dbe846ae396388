"""Behaviour of the Python client's API alone; its retry rules are in test_retry_rules.py with those of the others."""

import sys
import threading
from pathlib import Path

import pytest

from tests.services.fake_penstock import Fault

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients" / "python"))

from penstock_client import Consumer, ContractError, Message, Options, Producer, PullError, SendError, Verdict
from penstock_client.backoff import backoff_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code, producer_thrift
from penstock_client.credential import CredentialMint
from penstock_client.options import parse_endpoints
from penstock_client.plan import SendPlan

QUICK = Options(deadline_ms=2_000, backoff_first_ms=1, backoff_max_ms=5)


@pytest.fixture
def producer(fake):
    with Producer(fake.producer_endpoints, fake.app, fake.key_id, fake.secret, QUICK) as made:
        yield made


@pytest.fixture
def consumer(fake):
    with Consumer(fake.consumer_endpoints, fake.app, fake.key_id, fake.secret, "g", ["t"], options=QUICK) as made:
        yield made


def answer(code: int, retry_after_ms: int | None = None):
    return producer_thrift.SendResult(code=code, retry_after_ms=retry_after_ms)


def test_a_credential_is_reused_for_a_minute_and_then_minted_anew():
    now = [1_000.0]
    mint = CredentialMint("shop", "k1", "secret", 60_000, now_s=lambda: now[0])
    first = mint.credential()
    now[0] += 59.9
    assert mint.credential() is first
    now[0] += 0.2
    assert mint.credential().issued_at_ms == 1_060_100


def test_a_clock_that_jumps_back_makes_a_new_credential():
    now = [1_000.0]
    mint = CredentialMint("shop", "k1", "secret", 60_000, now_s=lambda: now[0])
    mint.credential()
    now[0] -= 1
    assert mint.credential().issued_at_ms == 999_000


def test_every_code_of_the_contract_has_the_action_of_its_hundreds_digit():
    assert {action_of(code) for code in Code._VALUES_TO_NAMES} == set(Action)
    assert action_of(Code.DUPLICATE) is Action.DONE
    assert action_of(999) is Action.UNKNOWN


def test_the_back_off_doubles_up_to_its_maximum_and_keeps_at_least_half_of_it():
    assert [backoff_s(n, 50, 300, 1.0) for n in (1, 2, 3, 4, 50)] == [0.05, 0.1, 0.2, 0.3, 0.3]
    assert backoff_s(1, 50, 300, 0.0) == 0.025


def test_a_plan_waits_for_the_longer_of_retry_after_and_back_off():
    plan = SendPlan([None] * 2, 0.0, lambda failures: 0.5)
    plan.answered(0, answer(Code.RATE_LIMITED, 2_000), 10.0)
    plan.answered(1, answer(Code.OVERLOADED, 100), 10.0)
    assert plan.due(10.4) == []
    assert plan.due(10.5) == [1]
    assert plan.due(12.0) == [0, 1]


def test_a_plan_keeps_to_the_slot_that_a_rate_limit_promised():
    plan = SendPlan([None], 0.0, lambda failures: 0.5)
    plan.answered(0, answer(Code.RATE_LIMITED, 100), 10.0)
    assert plan.next_due_s() == 10.1


def test_what_was_once_unknown_stays_unknown_although_a_later_attempt_was_refused():
    plan = SendPlan([None], 0.0, lambda failures: 0.0)
    plan.failed(0, "connection reset", sent=True, now_s=1.0)
    plan.answered(0, answer(Code.UNAVAILABLE), 2.0)
    assert plan.entries[0].final_code == Code.TIMEOUT


def test_what_never_left_this_machine_is_known_not_to_be_stored():
    plan = SendPlan([None], 0.0, lambda failures: 0.0)
    plan.failed(0, "connection refused", sent=False, now_s=1.0)
    assert plan.entries[0].final_code == Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("given", "parsed"),
    [("a:1,b:2", [("a", 1), ("b", 2)]), (["a:1"], [("a", 1)]), ([("a", 1)], [("a", 1)]), ("[::1]:9", [("::1", 9)])],
)
def test_endpoints_may_be_a_text_or_a_list(given, parsed):
    assert parse_endpoints(given) == parsed


@pytest.mark.parametrize("wrong", ["", "host", "host:", "host:port"])
def test_an_endpoint_without_a_port_is_refused(wrong):
    with pytest.raises(ValueError):
        parse_endpoints(wrong)


def test_a_refused_send_raises_with_code_and_reason(fake, producer):
    fake.producers[0].faults.append(Fault(code=Code.FORBIDDEN))
    fake.producers[1].faults.append(Fault(code=Code.FORBIDDEN))
    with pytest.raises(SendError, match="FORBIDDEN: a fault") as caught:
        producer.send(Message(topic="t", body=b"x"))
    assert not caught.value.maybe_stored


def test_a_send_that_ran_out_of_time_says_that_it_may_be_stored(fake, producer):
    for proxy in fake.producers:
        proxy.faults.append(Fault(drop="after", times=1_000))
    with pytest.raises(SendError) as caught:
        producer.send(Message(topic="t", body=b"x"), deadline_ms=200)
    assert caught.value.maybe_stored


def test_an_id_that_the_caller_gave_is_kept(fake, producer):
    assert producer.send(Message(topic="t", id="mine")).id == "mine"
    assert producer.send(Message(topic="t", id="mine")).code == Code.DUPLICATE


def test_many_messages_are_cut_into_calls_of_a_thousand(fake, producer):
    results = producer.send_all(Message(topic="t", body=b"x") for _ in range(2_500))
    assert all(result.ok for result in results)
    sizes = [len(call.messages) for proxy in fake.producers for call in proxy.calls if call.messages]
    assert sorted(sizes) == [500, 1_000, 1_000]


def test_threads_share_a_producer(fake, producer):
    def send_some():
        for _ in range(50):
            producer.send(Message(topic="t", body=b"x"))

    threads = [threading.Thread(target=send_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.store.topics["t"]) == 400


def test_a_consumer_proxy_in_place_of_a_producer_proxy_is_named_at_once(fake):
    wrong = Producer(fake.consumer_endpoints, fake.app, fake.key_id, fake.secret, QUICK)
    with wrong, pytest.raises(ContractError, match="refuses `send`"):
        wrong.send(Message(topic="t"))


def test_each_verdict_has_its_effect(fake, producer, consumer):
    producer.send_all([Message(topic="t", body=name) for name in (b"done", b"retry", b"reject", b"extend")])
    by_body = {delivery.message.body: delivery for delivery in consumer.pull()}
    consumer.done(by_body[b"done"])
    consumer.retry(by_body[b"retry"], delay_ms=0, reason="not yet")
    consumer.reject(by_body[b"reject"], "never")
    consumer.extend(by_body[b"extend"], 60_000)
    again = consumer.pull(wait_ms=1_000)
    assert [(delivery.message.body, delivery.attempt) for delivery in again] == [(b"retry", 2)]
    assert [record.message.body for record in fake.store.done] == [b"done"]
    assert [(record.message.body, reason) for _, record, reason in fake.store.dead] == [(b"reject", "never")]


def test_a_handler_that_raises_has_its_message_retried(fake, producer, consumer):
    producer.send(Message(topic="t", body=b"x"))
    attempts = []
    stop = threading.Event()

    def handle(delivery):
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise RuntimeError("not today")
        stop.set()
        return Verdict.DONE

    consumer.run(handle, stop, wait_ms=500)
    assert attempts == [1, 2]
    assert len(fake.store.done) == 1


def test_a_late_acknowledgement_is_counted_and_not_repeated(fake, producer, consumer):
    producer.send(Message(topic="t", body=b"x"))
    (delivery,) = consumer.pull()
    consumer.reject(delivery)
    consumer.done(delivery)
    consumer.flush()
    assert consumer.acks_refused == 1
    before = sum(len(proxy.calls) for proxy in fake.consumers)
    consumer.flush()
    assert sum(len(proxy.calls) for proxy in fake.consumers) == before


def test_thousands_of_acknowledgements_fit_a_new_connection(fake, producer):
    producer.send_all([Message(topic="t", body=b"x") for _ in range(2_000)])
    with Consumer(fake.consumers[0].address, fake.app, fake.key_id, fake.secret, "g", ["t"], options=QUICK) as first:
        deliveries = first.pull(2_000)
    with Consumer(fake.consumers[1].address, fake.app, fake.key_id, fake.secret, "g", ["t"], options=QUICK) as second:
        for delivery in deliveries:
            second.done(delivery)
    assert len(fake.store.done) == 2_000


def test_a_pull_without_any_proxy_fails_at_the_deadline(fake):
    fake.close()
    options = Options(deadline_ms=200, backoff_first_ms=1, backoff_max_ms=5)
    lonely = Consumer(fake.consumer_endpoints, fake.app, fake.key_id, fake.secret, "g", ["t"], options=options)
    with pytest.raises(PullError, match="UNAVAILABLE"):
        lonely.pull(wait_ms=0)
