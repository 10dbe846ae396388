"""Cases: endpoints that are no proxy of this kind, and what their answers leave known of a message."""

import struct
import time

from tests.e2e.clients.conformance.client import Client, fail_all, refusal, sdk_case, stored
from tests.services.fake_penstock import FakePenstock, Fault

NO_CONTRACT = -1
UNKNOWN_METHOD, WRONG_METHOD_NAME, PROTOCOL_ERROR = 1, 3, 7  # types of Thrift's application exception
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
FRAME = struct.pack(">I", 9) + b"\x80\x01\x00\x02no s"  # of another protocol: its text ends too early
PROMPT_S = 2.0  # the deadline is 10 s


@sdk_case("an endpoint of the other kind is passed over, at send and at pull")
def passed_over(fake: FakePenstock, client: Client) -> None:
    both = f"{fake.consumer_endpoints},{fake.producer_endpoints}"
    client.open(producer=both, consumer=both)
    assert [client.code() for _ in range(8)] == [0] * 8
    assert sum(len(client.bodies(most=2)) for _ in range(4)) == 8
    assert len(stored(fake)) == 8


@sdk_case("when all endpoints are of the other kind a send and a pull say so at once")
def all_wrong(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.consumer_endpoints, consumer=fake.producer_endpoints)
    began = time.monotonic()
    for _ in range(3):
        assert refusal(client.one) == NO_CONTRACT
        assert refusal(client.pull) == NO_CONTRACT
    assert time.monotonic() - began < PROMPT_S


@sdk_case("a call that the proxies refuse unread, as too long ones, is known not to be stored")
def refused_unread(fake: FakePenstock, client: Client) -> None:
    fail_all(fake, exception=PROTOCOL_ERROR)
    assert refusal(client.one) == NO_CONTRACT
    assert all(proxy.calls for proxy in fake.producers)


@sdk_case("an endpoint of the other kind does not hide that an earlier attempt may have stored the message")
def hides_nothing(fake: FakePenstock, client: Client) -> None:
    both = f"{fake.producers[0].address},{fake.consumers[0].address}"
    client.open(producer=both)
    fake.producers[0].faults.append(Fault(drop="after"))
    assert (client.code(id="a"), len(stored(fake))) == (2, 1)
    client.open(producer=both, deadline_ms=1_500, call_timeout_ms=300)
    fake.producers[0].faults.append(Fault(drop="hang", times=1_000))
    result = client.one(id="b")
    assert (result["code"], result["id"]) == (300, "b")


@sdk_case("a message that may be stored is TIMEOUT at once when no endpoint serves sends any more")
def no_longer(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    began = time.monotonic()
    for earlier in (Fault(drop="after"), Fault(code=300)):
        fake.producers[0].faults += [earlier, Fault(exception=UNKNOWN_METHOD)]
        result = client.one(id="a")
        assert (result["code"], result["id"], result["attempts"]) == (300, "a", 1)
    assert time.monotonic() - began < PROMPT_S


@sdk_case("of a batch what is stored is told, although no endpoint serves sends any more")
def part_stored(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    fake.producers[0].faults += [Fault(code=203, messages={1}), Fault(exception=UNKNOWN_METHOD)]
    results = client.send({"id": "a"}, {"id": "b"})
    assert [result["code"] for result in results] == [0, 203]


@sdk_case("what is no answer of the contract leaves the message unknown, and the other proxy gets it")
def garbage(fake: FakePenstock, client: Client) -> None:
    for fault in ({"foreign": HTTP}, {"foreign": FRAME}, {"exception": WRONG_METHOD_NAME}):
        client.open()
        fake.producers[0].faults.append(Fault(**fault))
        assert [client.code() for _ in range(2)] == [0, 0]
        assert not fake.producers[0].faults
    assert len(stored(fake)) == 6
    for fault in ({"foreign": HTTP}, {"exception": WRONG_METHOD_NAME}):
        client.open(producer=fake.producers[0].address, deadline_ms=500)
        fake.forget()
        fake.producers[0].faults.append(Fault(**fault, times=1_000))
        assert client.code() == 300
