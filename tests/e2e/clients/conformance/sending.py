"""The cases of the conformance suite: what each client does with the answers of a fake Penstock that fails on demand.

A case gets the fake, with two proxies of each kind, and a client of one language, opened on them. Its sentence is the
name in the table of clients/conformance/README.md.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from tests.services.fake_penstock import FakePenstock, Fault
from tests.waiting import until

TOPIC, GROUP = "t", "g"


class Client(Protocol):
    """One driver program; each call is one JSON object to it and one from it."""

    def open(self, **changes: Any) -> None: ...
    def send(self, *messages: dict[str, str]) -> list[dict[str, Any]]: ...
    def pull(self, most: int = 10, wait_ms: int = 1_000) -> dict[str, Any]: ...
    def settle(self, verdict: str, index: int = 0, delay_ms: int = 0, reason: str = "") -> None: ...
    def flush(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


Case = Callable[[FakePenstock, Client], None]
CASES: dict[str, Case] = {}


def case(sentence: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[sentence] = function
        return function

    return add


def fail_all(fake: FakePenstock, **fault: Any) -> None:
    for proxy in fake.producers + fake.consumers:
        proxy.faults.append(Fault(**fault))


def sent_ids(fake: FakePenstock) -> list[str]:
    return [message.id for proxy in fake.producers for call in proxy.calls for message in call.messages]


def one(client: Client, **fields: str) -> dict[str, Any]:
    (result,) = client.send({"body": "x", **fields})
    return result


@case("a stored message has its id, queue and offset")
def stored(fake: FakePenstock, client: Client) -> None:
    result = one(client, id="a", key="k")
    record = fake.store.topics[TOPIC][0]
    assert result == {"code": 0, "id": "a", "queue": record.queue, "offset": 0, "attempts": 1}


@case("a second send of an id is a DUPLICATE with the place of the first")
def duplicate(fake: FakePenstock, client: Client) -> None:
    first, second = one(client, id="a"), one(client, id="a")
    assert second == {**first, "code": 2}


@case("BUFFERED is success, without an offset")
def buffered(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=1)
    result = one(client, id="a")
    assert (result["code"], result["offset"], result["attempts"]) == (1, None, 1)


@case("1xx is reported and not retried")
def refused(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=101)
    assert (one(client)["code"], len(sent_ids(fake))) == (101, 1)


@case("2xx is retried with the same id")
def later(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=203)
    result = one(client)
    assert (result["code"], set(sent_ids(fake))) == (0, {result["id"]})
    assert result["attempts"] == len(sent_ids(fake)) >= 2


@case("RATE_LIMITED is retried after its retry_after_ms, at the proxy that promised the slot")
def rate_limited(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=200, retry_after_ms=300)
    began = time.monotonic()
    assert one(client)["code"] == 0
    assert time.monotonic() - began >= 0.3
    assert sorted(len(proxy.calls) for proxy in fake.producers) == [0, 2]


@case("3xx is retried with the same id")
def unknown(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=300)
    assert one(client, id="a")["code"] == 0
    assert set(sent_ids(fake)) == {"a"}


@case("4xx is retried at once at the other proxy")
def elsewhere(fake: FakePenstock, client: Client) -> None:
    for proxy in fake.producers:
        proxy.faults.append(Fault(code=400))
    assert one(client)["code"] == 0
    assert all(proxy.calls for proxy in fake.producers)


@case("5xx is reported and not retried")
def no_reply(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=501)
    assert (one(client)["code"], len(sent_ids(fake))) == (501, 1)


@case("a newer code of 1xx is reported as it is")
def newer_refusal(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=199)
    assert (one(client)["code"], len(sent_ids(fake))) == (199, 1)


@case("a newer code of 2xx is retried")
def newer_later(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=299)
    assert one(client)["code"] == 0
    assert len(fake.store.topics[TOPIC]) == 1


@case("of a batch only the refused messages are sent again")
def part_of_a_batch(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=203, messages={1}, times=1)
    results = client.send(*({"body": "x", "id": name} for name in "abc"))
    assert [result["code"] for result in results] == [0, 0, 0]
    assert sorted(set(sent_ids(fake))) == ["a", "b", "c"]
    assert [each.id for each in fake.store.topics[TOPIC]].count("b") == 1


@case("no answer: the same id goes to the other proxy, and is stored once")
def no_answer(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, drop="after")
    result = one(client, id="a")
    assert (result["code"], len(fake.store.topics[TOPIC])) == (2, 1)
    assert all(proxy.calls for proxy in fake.producers)


@case("past the deadline what may be stored is TIMEOUT")
def deadline_unknown(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=300)
    fail_all(fake, drop="after", times=1_000)
    assert one(client)["code"] == 300


@case("past the deadline what is not stored has the last refusal")
def deadline_refused(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=300)
    fail_all(fake, code=204, times=1_000)
    assert one(client)["code"] == 204


@case("a proxy that is gone is passed over")
def proxy_gone(fake: FakePenstock, client: Client) -> None:
    fake.producers[0].close()
    assert [one(client)["code"] for _ in range(4)] == [0, 0, 0, 0]


@case("a wrong secret is UNAUTHENTICATED, at send and at pull")
def wrong_secret(fake: FakePenstock, client: Client) -> None:
    client.open(secret="wrong")
    assert (one(client)["code"], client.pull()) == (104, {"code": 104})


@case("a pull passes over a proxy that is gone")
def consumer_proxy_gone(fake: FakePenstock, client: Client) -> None:
    one(client, key="k")
    fake.consumers[1].close()
    assert client.pull() == {"deliveries": [{"body": "x", "key": "k", "attempt": 1}]}
    assert client.pull(wait_ms=0) == {"deliveries": []}


@case("when no proxy answers a pull before its deadline it ends with UNAVAILABLE")
def no_consumer_proxy(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=200)
    for proxy in fake.consumers:
        proxy.close()
    assert client.pull(wait_ms=0) == {"code": 203}


@case("buffered transport works on the same ports")
def buffered_transport(fake: FakePenstock, client: Client) -> None:
    client.open(buffered=True)
    assert one(client, key="k")["code"] == 0
    assert client.pull() == {"deliveries": [{"body": "x", "key": "k", "attempt": 1}]}


@case("a first call above 64 KiB is preceded by a small one")
def large_first_call(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    (result,) = client.send({"body": "x" * 100_000})
    assert (result["code"], result["attempts"], fake.producers[0].connections) == (0, 1, 1)
    assert fake.producers[0].calls[0].messages == []


@case("an acknowledgement travels with the next pull")
def acknowledged(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    client.settle("done")
    assert fake.store.done == []
    client.pull(wait_ms=0)
    assert len(fake.store.done) == 1


@case("closing delivers the last acknowledgements by a pull of 0 messages")
def last_acknowledgements(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    client.settle("done")
    client.close()
    assert len(fake.store.done) == 1
    calls = [call for proxy in fake.consumers for call in proxy.calls]
    assert [call.max_messages for call in calls if call.acks] == [0]
    client.open()


@case("RETRY redelivers with the attempt one higher")
def retried(fake: FakePenstock, client: Client) -> None:
    one(client, key="k")
    client.pull()
    client.settle("retry", delay_ms=1, reason="not yet")
    client.flush()
    until(lambda: client.pull() == {"deliveries": [{"body": "x", "key": "k", "attempt": 2}]}, "the redelivery", 5)


@case("REJECT makes a dead letter with its reason")
def rejected(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    client.settle("reject", reason="broken")
    client.flush()
    ((group, record, reason),) = fake.store.dead
    assert (group, record.message.body, reason) == (GROUP, b"x", "broken")


@case("EXTEND makes the lease longer")
def extended(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    client.settle("extend", delay_ms=60_000)
    client.flush()
    ((_, lease),) = fake.store.leases.values()
    assert lease.until - time.monotonic() > 50


@case("a late acknowledgement is counted and not sent again")
def late(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    fake.store.leases.clear()
    client.settle("done")
    assert client.flush() == {"refused": 1}
    calls = sum(len(proxy.calls) for proxy in fake.consumers)
    client.flush()
    assert sum(len(proxy.calls) for proxy in fake.consumers) == calls


@case("acknowledgements survive a pull without answer")
def acknowledgements_survive(fake: FakePenstock, client: Client) -> None:
    one(client)
    client.pull()
    client.settle("done")
    for proxy in fake.consumers:
        proxy.faults.append(Fault(drop="before"))
    client.pull(wait_ms=0)
    assert len(fake.store.done) == 1


@case("a pull waits out an overload and leaves a proxy that stops")
def pull_retried(fake: FakePenstock, client: Client) -> None:
    one(client, key="k")
    fake.consumers[0].faults.append(Fault(code=201, retry_after_ms=50))
    fake.consumers[1].faults.append(Fault(code=400))
    assert client.pull() == {"deliveries": [{"body": "x", "key": "k", "attempt": 1}]}
