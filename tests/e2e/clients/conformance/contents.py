"""Cases: what a message may hold, delay and cancellation, requests and replies."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.clients.conformance.client import TOPIC, Client, case, refusal, stored
from tests.services.fake_penstock import FakePenstock
from tests.services.fake_store import message_thrift, producer_thrift

ANY_BYTE = bytes(range(256))


@case("a body of any bytes arrives unchanged, also what is no UTF-8")
def any_bytes(fake: FakePenstock, client: Client) -> None:
    assert client.code(body=ANY_BYTE) == 0
    assert stored(fake)[0].body == ANY_BYTE
    assert client.bodies() == [ANY_BYTE]


@case("an empty body arrives empty")
def empty_body(fake: FakePenstock, client: Client) -> None:
    assert client.code(body=b"") == 0
    assert client.bodies() == [b""]


@case("a body of 1 MiB arrives unchanged", without=("stub",))
def large_body(fake: FakePenstock, client: Client) -> None:
    assert client.code(body=b"0123456789abcdef", times=65_536) == 0
    assert client.bodies() == [b"0123456789abcdef" * 65_536]


@case("a key beyond ASCII arrives unchanged, and a message without one has none")
def keys(fake: FakePenstock, client: Client) -> None:
    client.send({"key": "schlüssel-鍵-🔑"}, {})
    assert [message.key for message in stored(fake)] == ["schlüssel-鍵-🔑", None]
    assert [each["key"] for each in client.pull()] == ["schlüssel-鍵-🔑", None]


@case("properties and a tag arrive unchanged")
def properties(fake: FakePenstock, client: Client) -> None:
    given = {"größe": "12 µm", "empty": "", "path": "a/b c"}
    client.send({"properties": given, "tag": "urgent"})
    assert (stored(fake)[0].properties, stored(fake)[0].tag) == (given, "urgent")
    (delivery,) = client.pull()
    assert (delivery["properties"], delivery["tag"]) == (given, "urgent")


@case("a delivery has the id of its message")
def id_of_a_delivery(fake: FakePenstock, client: Client) -> None:
    long = "i" * 64
    client.send({"id": long}, {})
    assert [each["id"] for each in client.pull()] == [long, fake.store.topics[TOPIC][1].id]


@case("messages of a key are pulled in the order of their sending")
def order(fake: FakePenstock, client: Client) -> None:
    bodies = [b"%d" % number for number in range(20)]
    for part in (bodies[:15], bodies[15:]):
        client.send(*({"body": body, "key": "k"} for body in part))
    assert client.bodies(8) + client.bodies(20) == bodies


@case("a delayed message is delivered not before its time")
def delayed(fake: FakePenstock, client: Client) -> None:
    began = time.monotonic()
    client.one(delay_ms=300)
    assert client.bodies() == [b"x"]
    assert time.monotonic() - began >= 0.3


@case("a cancelled message is not delivered")
def cancelled(fake: FakePenstock, client: Client) -> None:
    client.one(id="a", delay_ms=60_000)
    assert client.code(id="a", cancel=True) == 0
    assert fake.store.delayed == []


@case("a message that is not delayed is NOT_CANCELLABLE")
def not_cancellable(fake: FakePenstock, client: Client) -> None:
    client.one(id="a")
    assert client.code(id="a", cancel=True) == 108


@contextmanager
def request_of_another(fake: FakePenstock, body: bytes, wait_ms: int) -> Iterator[list[Any]]:
    """A request by another client at the second producer proxy; its results are in the list afterwards."""
    message = message_thrift.Message(topic=TOPIC, body=body)
    ask = producer_thrift.SendRequest(credential=fake.credential(), messages=[message], reply_wait_ms=wait_ms)
    results: list[Any] = []
    asking = threading.Thread(target=lambda: results.extend(fake.producers[1].send(ask).results))
    asking.start()
    yield results
    asking.join()


@contextmanager
def replier(fake: FakePenstock, verdict: str) -> Iterator[None]:
    """Another consumer, which takes one request and replies "re: " and its body, rejects it or does nothing."""

    def take() -> None:
        with fake.store.changed:
            until_asked = fake.store.changed.wait_for(lambda: fake.store.requests, 10)
            ((_, lease),) = fake.store.take("others", [TOPIC], 1, 60.0) if until_asked else ()
            message = lease.record.message
            if verdict == "reply":
                token = lease.record.request.token
                fake.store.reply(message_thrift.Message(topic=TOPIC, body=b"re: " + message.body, reply_to=token))
            elif verdict == "reject":
                lease.record.request.is_rejected = True
                fake.store.changed.notify_all()

    taking = threading.Thread(target=take)
    taking.start()
    yield
    taking.join()


@case("a request returns the reply")
def request(fake: FakePenstock, client: Client) -> None:
    with replier(fake, "reply"):
        (result,) = client.send({"body": b"six\xff"}, reply_wait_ms=5_000)
    assert (result["code"], result["reply"]) == (0, b"re: six\xff")


@case("a request without consumer, reply or success says which: NO_CONSUMER, NO_REPLY, CONSUMER_FAILED")
def request_in_vain(fake: FakePenstock, client: Client) -> None:
    (nobody,) = client.send({}, reply_wait_ms=100)
    fake.store.read_to["others", TOPIC] = 1
    with replier(fake, "nothing"):
        (silent,) = client.send({}, reply_wait_ms=300)
    with replier(fake, "reject"):
        (failed,) = client.send({}, reply_wait_ms=5_000)
    assert [each["code"] for each in (nobody, silent, failed)] == [500, 501, 502]


@case("a reply reaches the sender of the request, at another proxy")
def reply(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    with request_of_another(fake, b"hello", 5_000) as results:
        (delivery,) = client.pull(wait_ms=5_000)
        assert (delivery["body"], delivery["asked"]) == (b"hello", True)
        client.reply(b"re: hello\xff")
    assert [(each.code, each.reply.body) for each in results] == [(0, b"re: hello\xff")]


@case("a reply that comes too late is STALE_RECEIPT")
def late_reply(fake: FakePenstock, client: Client) -> None:
    with request_of_another(fake, b"hello", 1_500) as results:  # the pull has to come within it, on a busy machine too
        client.pull(wait_ms=5_000)
    assert [each.code for each in results] == [501]
    assert refusal(client.reply, b"too late") == 106


@case("a message that is no request asks for no reply")
def no_request(fake: FakePenstock, client: Client) -> None:
    client.one()
    assert [each["asked"] for each in client.pull()] == [False]
