"""Cases: the batching producer, and the order of a key over retries."""

import threading
import time

from tests.e2e.clients.conformance.client import ONE_THREAD, Client, fail_all, sdk_case, sent_ids, stored
from tests.services.fake_penstock import FakePenstock, Fault
from tests.waiting import until

BATCH = [{"id": name, "key": "k"} for name in "abc"]


def calls(fake: FakePenstock) -> list[list[str]]:
    return [[message.id for message in call.messages] for proxy in fake.producers for call in proxy.calls]


def codes(results: list[dict]) -> list[int]:
    return [each["code"] for each in results]


@sdk_case("messages of a key keep their order when some of them are sent again")
def order_over_retries(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    fake.producers[0].faults.append(Fault(code=201, retry_after_ms=[500, 1, 1, 1]))
    results = client.send(*BATCH, {"id": "other", "key": "o"})
    assert codes(results) == [0, 0, 0, 0]
    assert [message.id for message in stored(fake)] == ["other", "a", "b", "c"]


@sdk_case("a batching producer waits for its linger and sends what came, in one call", without=ONE_THREAD)
def linger(fake: FakePenstock, client: Client) -> None:
    began = time.monotonic()
    results = client.batch(*BATCH, linger_ms=400)
    assert time.monotonic() - began >= 0.4
    assert codes(results) == [0, 0, 0]
    assert calls(fake) == [["a", "b", "c"]]


@sdk_case("a batch of enough messages, or of enough bytes, does not wait for its linger")
def enough(fake: FakePenstock, client: Client) -> None:
    assert codes(client.batch(*BATCH, {"id": "d"}, count=2)) == [0, 0, 0, 0]
    assert codes(client.batch({"id": "e"}, bytes=1)) == [0]
    assert sorted(sent_ids(fake)) == list("abcde")


@sdk_case("a flush sends what waits at once")
def flushed(fake: FakePenstock, client: Client) -> None:
    assert codes(client.batch(*BATCH, flush=True)) == [0, 0, 0]
    assert calls(fake) == [["a", "b", "c"]]


@sdk_case("each message of a batch has its own outcome, and only what needs it is sent again")
def own_outcome(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    fake.producers[0].faults += [Fault(code=203, messages={2}), Fault(code=101, messages={0})]
    results = client.batch({"id": "a"}, {"id": "b"}, {"id": "c"}, flush=True)
    assert codes(results) == [0, 0, 101]
    assert [each["attempts"] for each in results[:2]] == [1, 1]
    assert sent_ids(fake) == ["a", "b", "c", "c"]


@sdk_case("a message without id gets one from its batching producer, and is stored once when the answer is lost")
def lost_answer(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, drop="after")
    results = client.batch({"key": "k", "body": b"1"}, {"key": "k", "body": b"2"}, flush=True)
    assert codes(results) == [2, 2]
    assert [message.body for message in stored(fake)] == [b"1", b"2"]
    assert [each["id"] for each in results] == [message.id for message in stored(fake)]
    assert all(len(each["id"]) == 32 for each in results)


@sdk_case("a proxy that dies with a batch in flight: nothing is lost, nothing is stored twice")
def proxy_dies(fake: FakePenstock, client: Client) -> None:
    for proxy in fake.producers:
        proxy.faults.append(Fault(drop="hang"))

    def kill() -> None:
        until(lambda: any(proxy.calls for proxy in fake.producers), "the batch is in flight", 10)
        (busy,) = [proxy for proxy in fake.producers if proxy.calls]
        (other,) = [proxy for proxy in fake.producers if not proxy.calls]
        other.faults.clear()
        busy.close()

    killing = threading.Thread(target=kill)
    killing.start()
    results = client.batch(*({"id": f"m{number}", "key": f"k{number % 3}"} for number in range(30)), flush=True)
    killing.join()
    assert codes(results) == [0] * 30
    assert [message.id for message in stored(fake)] == [f"m{number}" for number in range(30)]


@sdk_case("a batching producer that is full waits for room", without=ONE_THREAD)
def waits_for_room(fake: FakePenstock, client: Client) -> None:
    assert codes(client.batch(*BATCH, linger_ms=20, bytes_max=1)) == [0, 0, 0]
    assert sorted(calls(fake)) == [["a"], ["b"], ["c"]]
    assert [message.id for message in stored(fake)] == ["a", "b", "c"]


@sdk_case("a batching producer that stays full refuses the message as full", without=ONE_THREAD)
def refuses_when_full(fake: FakePenstock, client: Client) -> None:
    first, *others = client.batch(*BATCH, bytes_max=1, full_wait_ms=0, flush=True)
    assert first["code"] == 0
    assert [each["error"] for each in others] == ["full", "full"]
    assert sent_ids(fake) == ["a"]


@sdk_case("closing a batching producer sends what waits")
def closed(fake: FakePenstock, client: Client) -> None:
    assert codes(client.batch(*BATCH, close_ms=10_000)) == [0, 0, 0]
    assert calls(fake) == [["a", "b", "c"]]


@sdk_case("closing ends by its deadline, and names what it has not sent as closed", without=ONE_THREAD)
def closed_in_vain(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address, deadline_ms=600, call_timeout_ms=500)
    client.one()  # a first call would be preceded by a small one, as this one is large
    fail_all(fake, drop="hang", times=1_000)
    results = client.batch(*({"id": f"m{number}"} for number in range(1_200)), close_ms=50)
    assert codes(results[:1_000]) == [300] * 1_000  # may be stored: they were in a call
    assert [each["error"] for each in results[1_000:]] == ["closed"] * 200
