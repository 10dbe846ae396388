"""Each client's batching producer on a running Penstock; on the fake it is in the conformance suite."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.access import of_running
from tests.e2e.clients.conformance.client import Client
from tests.waiting import until

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients" / "python"))

from penstock_client import Consumer, Delivery

MESSAGES, KEYS = 300, 3
RATE = 150  # per second, so that the proxy refuses a part of the messages again and again
SLOW = ("python", "php", "cpp", "java", "node", "rust", "csharp")
LANGUAGES = ["go", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]


@pytest.fixture
def client(language: str) -> Iterator[Client]:
    made = Client(language)
    yield made
    made.kill()


@pytest.mark.parametrize("language", LANGUAGES, indirect=True)
def test_each_key_keeps_its_order_over_a_rate_limit_and_a_killed_proxy(penstock_up, language: str, client: Client):
    access = of_running(penstock_up)
    topic = access.topic(f"batching.{language}")
    penstock_up.run("topic", "set", topic, "--rate-messages", str(RATE))
    who = (access.app, access.key_id, access.secret)
    client.at(access.producer, access.consumer, *who, topic, f"{topic}.unused").open(deadline_ms=30_000)
    sent = [{"id": f"{number:03}", "key": f"k{number % KEYS}"} for number in range(MESSAGES)]
    codes: list[int] = []
    sending = threading.Thread(target=lambda: codes.extend(each["code"] for each in client.batch(*sent, linger_ms=5)))
    seen: list[Delivery] = []

    def pull() -> int:
        pulled = consumer.pull(MESSAGES, wait_ms=1_000)
        seen.extend(pulled)
        for each in pulled:
            consumer.done(each)
        return len(seen)

    with Consumer(access.consumer, *who, f"{topic}.readers", [topic]) as consumer:
        sending.start()
        until(pull, "the first messages", 20)
        penstock_up.kill("producer_proxy")
        until(lambda: pull() >= MESSAGES, "all messages", 40)
        sending.join()
    assert {code for code in codes if code not in (0, 2)} == set()
    stored = sorted(seen, key=lambda each: (each.queue, each.offset))
    for key in range(KEYS):
        ids = [each.id for each in stored if each.message.key == f"k{key}"]
        assert ids == [each["id"] for each in sent[key::KEYS]]
