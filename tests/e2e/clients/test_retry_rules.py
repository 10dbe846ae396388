"""The programs of each SDK against a fake Penstock that misbehaves. The rules one by one: test_conformance.py."""

import time
from collections import Counter

import pytest

from tests.e2e.clients.conftest import Run
from tests.services.fake_penstock import Fault

MESSAGES = 10


@pytest.fixture
def ten_lines(tmp_path):
    path = tmp_path / "ten"
    path.write_text("".join(f"line {number}\n" for number in range(MESSAGES)))
    return path


@pytest.fixture
def produce(run: Run, fake, language, ten_lines):
    """Sends the ten lines in one call, with that language's demo_producer."""

    def produce_with(*more: object, endpoints: str = ""):
        where = ("--endpoints", endpoints or fake.producer_endpoints, "--app", fake.app, "--key-id", fake.key_id)
        what = ("--topic", "t", "--file", ten_lines, "--keys", 4, "--batch", MESSAGES)
        return run(language, "demo_producer", fake.secret, *where, *what, *more)

    return produce_with


@pytest.fixture
def consume(run: Run, fake, language):
    def consume_with(*more: object, endpoints: str = "", count: int = MESSAGES):
        where = ("--endpoints", endpoints or fake.consumer_endpoints, "--app", fake.app, "--key-id", fake.key_id)
        return run(
            language, "demo_consumer", fake.secret, *where, "--topic", "t", "--group", "g", "--count", count, *more
        )

    return consume_with


def calls_of(fake) -> list[list[str]]:
    """The ids of each call's messages, in order of the calls' credentials and sizes; only calls that carry messages."""
    return [[message.id for message in call.messages] for proxy in fake.producers for call in proxy.calls]


def fail_everywhere(fake, **fault) -> None:
    for proxy in fake.producers:
        proxy.faults.append(Fault(**fault))


def test_a_message_gets_an_id_of_32_hex_digits_before_its_first_attempt(fake, produce):
    assert produce().status == 0
    (ids,) = calls_of(fake)
    assert len(set(ids)) == MESSAGES
    assert all(len(text) == 32 and int(text, 16) >= 0 for text in ids)


def test_only_the_messages_that_were_refused_for_now_are_sent_again_with_their_ids(fake, produce):
    fake.producers[0].faults.append(Fault(code=203, messages={2, 5}))
    finished = produce(endpoints=fake.producers[0].address)
    assert finished.status == 0, finished.errors
    first, again = calls_of(fake)
    assert again == [first[2], first[5]]
    assert finished.report["retried"] == 2
    assert len(fake.store.topics["t"]) == MESSAGES


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_connection_is_answered_by_the_same_ids_elsewhere_and_makes_no_duplicate(fake, produce, when):
    fail_everywhere(fake, drop=when)
    finished = produce()
    assert finished.status == 0, finished.errors
    calls = calls_of(fake)
    assert len(calls) == 3  # each proxy broke one call, and one of them took the third
    assert calls[0] == calls[1] == calls[2]
    assert all(proxy.calls for proxy in fake.producers)
    assert len(fake.store.topics["t"]) == MESSAGES


def test_a_wrong_request_is_not_retried_and_its_reason_is_told(fake, produce):
    fail_everywhere(fake, code=101, messages={3})
    finished = produce()
    assert finished.status == 1
    assert "a fault" in finished.errors
    assert len(calls_of(fake)) == 1


def test_the_deadline_ends_all_retries(fake, produce):
    fail_everywhere(fake, code=201, times=10_000)
    began = time.monotonic()
    finished = produce("--deadline-ms", 600)
    assert finished.status == 1
    assert time.monotonic() - began < 5
    assert 2 <= len(calls_of(fake)) < 40  # it backed off


def test_a_wrong_secret_ends_producer_and_consumer_with_the_reason(fake, run: Run, language, ten_lines):
    common = ("--app", fake.app, "--key-id", fake.key_id, "--topic", "t")
    sent = run(language, "demo_producer", "wrong", "--endpoints", fake.producer_endpoints, *common, "--file", ten_lines)
    pulled = run(
        language,
        "demo_consumer",
        "wrong",
        "--endpoints",
        fake.consumer_endpoints,
        *common,
        "--group",
        "g",
        "--count",
        1,
    )
    assert (sent.status, pulled.status) == (1, 1)
    assert "not valid" in sent.errors
    assert "UNAUTHENTICATED" in pulled.errors


def test_acknowledgements_survive_a_consumer_proxy_that_breaks(fake, produce, consume):
    produce()
    for proxy in fake.consumers:
        proxy.faults.append(Fault(drop="before"))
    assert consume("--max", 4).status == 0
    assert Counter(record.id for record in fake.store.done) == Counter(fake.store.ids[key].id for key in fake.store.ids)
