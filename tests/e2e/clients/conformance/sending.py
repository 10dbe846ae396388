"""Cases: result codes, retries, deadlines and batches of a send."""

import time

from tests.e2e.clients.conformance.client import TOPIC, Client, case, fail_all, sdk_case, sent_ids, stored
from tests.services.fake_penstock import FakePenstock, Fault

REFUSALS = (100, 101, 102, 105, 108, 109)  # of a send, by the contract
LATER = (201, 202, 203, 204, 205)
WITHOUT_REPLY = (500, 501, 502)


@case("a stored message has its id, queue and offset")
def place(fake: FakePenstock, client: Client) -> None:
    result = client.one(id="a", key="k")
    record = fake.store.topics[TOPIC][0]
    assert result == {"code": 0, "id": "a", "queue": record.queue, "offset": 0, "attempts": 1, "reply": None}


@sdk_case("a message without an id gets one of 32 hex digits before its first attempt")
def own_id(fake: FakePenstock, client: Client) -> None:
    result = client.one()
    assert sent_ids(fake) == [result["id"]]
    assert len(result["id"]) == 32
    assert int(result["id"], 16) >= 0


@case("a second send of an id is a DUPLICATE with the place of the first")
def duplicate(fake: FakePenstock, client: Client) -> None:
    first, second = client.one(id="a"), client.one(id="a")
    assert second == {**first, "code": 2}


@case("BUFFERED is success, without an offset")
def buffered(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=1)
    result = client.one(id="a")
    assert (result["code"], result["offset"], result["attempts"]) == (1, None, 1)


@case("each 1xx code of the contract is reported and not retried")
def refused(fake: FakePenstock, client: Client) -> None:
    for code in REFUSALS:
        fail_all(fake, code=code)
        assert client.code() == code
        assert len(sent_ids(fake)) == 1
        fake.forget()


@sdk_case("each 2xx code of the contract is retried with the same id")
def later(fake: FakePenstock, client: Client) -> None:
    for code in LATER:
        fail_all(fake, code=code)
        result = client.one()
        assert (result["code"], set(sent_ids(fake))) == (0, {result["id"]})
        assert result["attempts"] == len(sent_ids(fake)) >= 2
        fake.forget()


@sdk_case("RATE_LIMITED is retried after its retry_after_ms, at the proxy that promised the slot")
def rate_limited(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=200, retry_after_ms=300)
    began = time.monotonic()
    assert client.code() == 0
    assert time.monotonic() - began >= 0.3
    assert sorted(len(proxy.calls) for proxy in fake.producers) == [0, 2]


@sdk_case("RATE_LIMITED without retry_after_ms is retried after the back-off")
def rate_limited_untold(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=200)
    began = time.monotonic()
    assert client.code() == 0
    assert time.monotonic() - began >= 0.025


@sdk_case("OVERLOADED is not retried before its retry_after_ms")
def overloaded(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=201, retry_after_ms=300)
    began = time.monotonic()
    assert client.code() == 0
    assert time.monotonic() - began >= 0.3


@sdk_case("a retry_after_ms beyond the deadline ends the send with the refusal, at once")
def beyond_the_deadline(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=2_000)
    fail_all(fake, code=201, retry_after_ms=60_000)
    began = time.monotonic()
    assert client.code() == 201
    assert time.monotonic() - began < 1.5


@sdk_case("3xx is retried with the same id, and stored once")
def unknown(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=300)
    assert client.code(id="a") == 0
    assert set(sent_ids(fake)) == {"a"}
    assert len(stored(fake)) == 1


@sdk_case("4xx is retried at once at the other proxy")
def elsewhere(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=400)
    assert client.code() == 0
    assert all(proxy.calls for proxy in fake.producers)


@case("each 5xx code of the contract is reported and not retried")
def no_reply(fake: FakePenstock, client: Client) -> None:
    for code in WITHOUT_REPLY:
        fail_all(fake, code=code)
        assert client.code() == code
        assert len(sent_ids(fake)) == 1
        fake.forget()


@case("a newer code of 1xx or 5xx is reported as it is")
def newer_refusal(fake: FakePenstock, client: Client) -> None:
    for code in (199, 599):
        fail_all(fake, code=code)
        assert client.code() == code
        assert len(sent_ids(fake)) == 1
        fake.forget()


@sdk_case("a newer code of 2xx, 3xx or 4xx is retried by its digit")
def newer_later(fake: FakePenstock, client: Client) -> None:
    for code in (299, 399, 499):
        fail_all(fake, code=code)
        assert client.code() == 0
        assert len(set(sent_ids(fake))) == 1
        fake.forget()


@sdk_case("a code with an unknown digit is taken as unknown")
def unknown_digit(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=800)
    fail_all(fake, code=900, times=1_000)
    assert client.code(id="a") == 300
    assert len(sent_ids(fake)) >= 2


@sdk_case("of a batch only the messages that need it are sent again, each by its own code")
def part_of_a_batch(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    fake.producers[0].faults.append(Fault(code=203, messages={1, 2}))
    fake.producers[0].faults.append(Fault(code=101, messages={1}))
    results = client.send(*({"id": name} for name in "abc"))
    assert [result["code"] for result in results] == [0, 0, 101]
    assert sent_ids(fake) == ["a", "b", "c", "b", "c"]


@sdk_case("no answer: the same id goes to the other proxy, and is stored once")
def no_answer(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, drop="after")
    assert client.code(id="a") == 2
    assert len(stored(fake)) == 1
    assert all(proxy.calls for proxy in fake.producers)


@sdk_case("past the deadline what may be stored is TIMEOUT")
def deadline_unknown(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=300)
    fail_all(fake, drop="after", times=1_000)
    assert client.code() == 300


@sdk_case("past the deadline what is not stored has the last refusal")
def deadline_refused(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=300)
    fail_all(fake, code=204, times=1_000)
    assert client.code() == 204


@sdk_case("a refusal after an unknown attempt leaves it unknown")
def stays_unknown(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=300, producer=fake.producers[0].address)
    fake.producers[0].faults += [Fault(code=300), Fault(code=203, times=1_000)]
    assert client.code() == 300


@sdk_case("the reason of a TIMEOUT tells a refusal as the answer of the last attempt alone")
def told_as_the_last(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=1_500, producer=fake.producers[0].address)
    earlier = "an earlier attempt may have stored it"
    answered = f"{earlier}; the last one was answered: nothing was stored"
    beyond_ms = 60_000  # the send ends at once
    fake.producers[0].faults += [Fault(code=300), Fault(code=501)]
    assert client.code() == 501
    for faults, reason in (
        ((Fault(drop="after"), Fault(code=203, error="nothing was stored", retry_after_ms=beyond_ms)), answered),
        ((Fault(code=300), Fault(code=203, error=None, retry_after_ms=beyond_ms)), earlier),
        ((Fault(code=203), Fault(code=300, error="it may be stored", retry_after_ms=beyond_ms)), "it may be stored"),
        ((Fault(drop="after"), Fault(code=102, error="nothing was stored")), answered),  # a third would be stored
        ((Fault(code=300), Fault(code=105, error=None)), earlier),
        ((Fault(code=300), Fault(code=400, error="nothing was stored", times=1_000)), answered),
    ):
        fake.producers[0].faults.clear()
        fake.producers[0].faults += faults
        assert (client.code(), client.reasons) == (300, [reason])


@sdk_case("a request that is sent again waits no longer than to the deadline and its wait")
def late_request(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=2_000, producer=fake.producers[0].address)
    fake.producers[0].faults.append(Fault(code=203, retry_after_ms=2_500))
    (result,) = client.send({}, reply_wait_ms=2_000)
    waits_ms = [call.reply_wait_ms for call in fake.producers[0].calls]
    assert (result["code"], waits_ms[0], waits_ms[1] <= 1_500) == (500, 2_000, True)


@sdk_case("a request that was stored before is TIMEOUT, as its reply cannot be had")
def stored_request(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    for earlier in ([], [Fault(drop="before")], [Fault(code=300)]):
        fake.producers[0].faults += [*earlier, Fault(code=2, error=None)]
        (result,) = client.send({"id": "a"}, reply_wait_ms=500)
        assert (result["code"], result["id"], result["attempts"]) == (300, "a", len(earlier) + 1)
        assert client.reasons == ["stored by an earlier attempt, whose reply cannot be had"]


@sdk_case("more than a thousand messages go in several calls")
def many_messages(fake: FakePenstock, client: Client) -> None:
    results = client.send(*({"id": f"m{number}"} for number in range(1_200)))
    assert {result["code"] for result in results} == {0}
    sizes = [len(call.messages) for proxy in fake.producers for call in proxy.calls if call.messages]
    assert (sum(sizes), max(sizes)) == (1_200, 1_000)


@sdk_case("messages of more than 8 MB together go in several calls")
def many_bytes(fake: FakePenstock, client: Client) -> None:
    results = client.send(*({"id": name, "times": 3_000_000} for name in "abc"))
    assert [result["code"] for result in results] == [0, 0, 0]
    assert [len(message.body) for message in stored(fake)] == [3_000_000] * 3
    assert max(len(call.messages) for proxy in fake.producers for call in proxy.calls) == 2


@sdk_case("a first call above 64 KiB is preceded by a small one")
def large_first_call(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    result = client.one(times=100_000)
    assert (result["code"], result["attempts"], fake.producers[0].connections) == (0, 1, 1)
    assert fake.producers[0].calls[0].messages == []
