"""Cases: pulls, leases, verdicts and acknowledgements."""

import time

from tests.e2e.clients.conformance.client import GROUP, ONE_THREAD, Client, case, fail_all, refusal, sdk_case
from tests.services.fake_penstock import FakePenstock, Fault
from tests.waiting import until


@sdk_case("an acknowledgement travels with the next pull")
def acknowledged(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("done")
    assert fake.store.done == []
    client.pull(wait_ms=0)
    assert len(fake.store.done) == 1


@sdk_case("closing delivers the last acknowledgements by a pull of 0 messages")
def last_acknowledgements(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("done")
    client.close()
    assert len(fake.store.done) == 1
    calls = [call for proxy in fake.consumers for call in proxy.calls]
    assert [call.max_messages for call in calls if call.acks] == [0]
    client.open()


@case("RETRY redelivers after its delay with the attempt one higher")
def retried(fake: FakePenstock, client: Client) -> None:
    client.one(key="k")
    client.pull()
    began = time.monotonic()
    client.settle("retry", delay_ms=200, reason="not yet")
    client.flush()
    assert [(each["key"], each["attempt"]) for each in client.pull()] == [("k", 2)]
    assert time.monotonic() - began >= 0.2


@case("REJECT makes a dead letter with its reason")
def rejected(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("reject", reason="broken")
    client.flush()
    ((group, record, reason),) = fake.store.dead
    assert (group, record.message.body, reason) == (GROUP, b"x", "broken")


@case("EXTEND makes the lease longer")
def extended(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("extend", delay_ms=60_000)
    client.flush()
    ((_, lease),) = fake.store.leases.values()
    assert lease.until - time.monotonic() > 50


@case("the messages of one pull each get their own verdict")
def mixed_verdicts(fake: FakePenstock, client: Client) -> None:
    client.send(*({"body": name} for name in (b"a", b"b", b"c")))
    client.pull()
    client.settle("reject", 0, reason="no")
    client.settle("done", 1)
    client.settle("retry", 2, delay_ms=1)
    client.flush()
    assert [record.message.body for _, record, _ in fake.store.dead] == [b"a"]
    assert [record.message.body for record in fake.store.done] == [b"b"]
    assert [(each["body"], each["attempt"]) for each in client.pull()] == [(b"c", 2)]


@case("what is not settled comes again after its lease, with the attempt one higher")
def expired(fake: FakePenstock, client: Client) -> None:
    fake.store.lease_ms = 200
    client.one()
    assert [each["attempt"] for each in client.pull()] == [1]
    assert [each["attempt"] for each in client.pull()] == [2]


@case("a consumer's own lease time is asked for, else the group's applies")
def own_lease(fake: FakePenstock, client: Client) -> None:
    client.pull(wait_ms=0)
    client.open(lease_ms=5_000)
    client.pull(wait_ms=0)
    calls = [call for proxy in fake.consumers for call in proxy.calls if call.max_messages]
    assert sorted(call.invisible_ms or 0 for call in calls) == [0, 5_000]


@sdk_case("a late acknowledgement is counted and not sent again")
def late(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    fake.store.leases.clear()
    client.settle("done")
    assert client.flush() == 1
    calls = sum(len(proxy.calls) for proxy in fake.consumers)
    client.flush()
    assert sum(len(proxy.calls) for proxy in fake.consumers) == calls


@sdk_case("acknowledgements survive a pull without answer")
def acknowledgements_survive(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("done")
    for proxy in fake.consumers:
        proxy.faults.append(Fault(drop="before"))
    client.pull(wait_ms=0)
    assert len(fake.store.done) == 1


@sdk_case("an acknowledgement whose answer was lost is repeated, and not counted as refused")
def acknowledgement_repeated(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.pull()
    client.settle("done")
    fail_all(fake, drop="after")
    assert client.flush() == 0
    assert len(fake.store.done) == 1


@sdk_case("a pull waits out an overload and leaves a proxy that stops")
def pull_retried(fake: FakePenstock, client: Client) -> None:
    client.one()
    fake.consumers[0].faults.append(Fault(code=201, retry_after_ms=50))
    fake.consumers[1].faults.append(Fault(code=400))
    assert client.bodies() == [b"x"]


@sdk_case("a pull at a rate limit waits for its slot, at the proxy that promised it")
def pull_limited(fake: FakePenstock, client: Client) -> None:
    client.one()
    fail_all(fake, code=200, retry_after_ms=200)
    fake.producers[0].faults.clear()
    began = time.monotonic()
    assert client.bodies() == [b"x"]
    assert time.monotonic() - began >= 0.2
    assert sorted(len(proxy.calls) for proxy in fake.consumers) == [0, 2]


@case("a pull for a group or topic that is not defined, or not granted, is refused")
def pull_refused(fake: FakePenstock, client: Client) -> None:
    for code in (102, 103, 105):
        fail_all(fake, code=code)
        assert refusal(client.pull, wait_ms=0) == code
        fake.forget()


@case("a pull returns when a message comes, before its wait is over")
def long_poll(fake: FakePenstock, client: Client) -> None:
    client.one(delay_ms=150)
    began = time.monotonic()
    assert client.bodies(wait_ms=20_000) == [b"x"]
    assert time.monotonic() - began < 10


@case("a pull takes no more messages than it asks for")
def at_most(fake: FakePenstock, client: Client) -> None:
    client.send({}, {}, {})
    assert [len(client.pull(2)), len(client.pull(2))] == [2, 1]


@sdk_case("the loop handles each message once and acknowledges all")
def loop(fake: FakePenstock, client: Client) -> None:
    client.send(*({"body": b"%d" % number} for number in range(6)))
    assert sorted(client.run(6)) == [b"%d" % number for number in range(6)]
    assert len(fake.store.done) == 6
    assert client.flush() == 0


@sdk_case("a handler that fails costs its message an attempt, with the error as reason")
def failing_handler(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.run(1, verdict="fail")
    (ack,) = [ack for proxy in fake.consumers for call in proxy.calls for ack in call.acks or () if ack.verdict == 1]
    assert "the handler failed" in ack.reason
    until(lambda: [each["attempt"] for each in client.pull()] == [2], "the redelivery", 5)


@sdk_case("a handler that fails by what is no usual exception costs its message an attempt, too")
def fatal_handler(fake: FakePenstock, client: Client) -> None:
    client.one()
    assert client.run(1, verdict="fault") == [b"x"]
    until(lambda: [each["attempt"] for each in client.pull()] == [2], "the redelivery", 5)


@sdk_case("a handler that rejects makes a dead letter")
def rejecting_handler(fake: FakePenstock, client: Client) -> None:
    client.one()
    client.run(1, verdict="reject")
    assert len(fake.store.dead) == 1


@sdk_case("the lease of a message in its handler is extended", without=ONE_THREAD)
def slow_handler(fake: FakePenstock, client: Client) -> None:
    fake.store.lease_ms = 600
    client.one()
    assert client.run(1, handle_ms=1_000) == [b"x"]
    assert (len(fake.store.done), client.flush()) == (1, 0)


@sdk_case("the metrics hook is told of each call, failure, outcome and handled message")
def metrics(fake: FakePenstock, client: Client) -> None:
    fake.producers[0].faults.append(Fault(drop="before"))
    fake.producers[1].faults.append(Fault(drop="before"))
    client.one()
    client.one()
    client.run(2)
    calls = sum(len(proxy.calls) for proxy in fake.producers + fake.consumers)
    assert client.told() == [calls, 2, 2, 2]


@sdk_case("a stop gives back what no handler has seen, without an attempt")
def given_back(fake: FakePenstock, client: Client) -> None:
    client.send(*({"body": b"%d" % number} for number in range(40)))
    handled = client.run(3)
    left = client.pull(40)
    assert len(handled) + len(left) == 40
    assert {each["attempt"] for each in left} == {1}


@sdk_case("the loop rides through an outage of all proxies")
def outage(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=100)
    client.one()
    for proxy in fake.consumers:
        proxy.faults.append(Fault(drop="before", times=3))
    assert client.run(1) == [b"x"]


@sdk_case("the loop waits for a topic until it is defined")
def undefined(fake: FakePenstock, client: Client) -> None:
    client.one()
    for proxy in fake.consumers:
        proxy.faults.append(Fault(code=102, times=2))
    assert client.run(1) == [b"x"]


@sdk_case("the loop ends with a refusal that waiting does not mend")
def loop_refused(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, code=105)
    assert refusal(client.run, 1) == 105


@sdk_case("several workers handle at a time, and keep the order of a key", without=ONE_THREAD)
def workers(fake: FakePenstock, client: Client) -> None:
    fake.wait_ms_max = 50  # a stop waits for the pull in progress
    client.send({"body": b"1", "key": "k"}, {"body": b"2", "key": "k"}, {"body": b"other"})
    handled = client.run(3, handle_ms=100, workers=3)
    assert sorted(handled) == [b"1", b"2", b"other"]
    assert handled[-1] == b"2"  # it waited for the first of its key, and the other one for neither


@sdk_case("so many workers handle at a time, and not more", without=ONE_THREAD)
def busy_workers(fake: FakePenstock, client: Client) -> None:
    fake.wait_ms_max = 50
    client.send(*({"body": b"%d" % number} for number in range(6)))
    handled = client.run(6, handle_ms=300, workers=3)
    assert sorted(handled) == [b"%d" % number for number in range(6)]
    assert client.busiest == 3
    assert len(fake.store.done) == 6


@sdk_case("a stop waits for the handlers of all workers, and gives back the others", without=ONE_THREAD)
def workers_stop(fake: FakePenstock, client: Client) -> None:
    fake.wait_ms_max = 50
    fake.store.lease_ms = 900  # extended while a stop waits for handlers
    client.send(*({"body": b"%d" % number} for number in range(10)))
    handled = client.run(1, handle_ms=1_000, workers=3)
    assert 1 <= len(handled) <= 3
    assert (len(fake.store.done), client.flush()) == (len(handled), 0)
    left = client.pull(10)
    assert len(handled) + len(left) == 10
    assert {each["attempt"] for each in left} == {1}
