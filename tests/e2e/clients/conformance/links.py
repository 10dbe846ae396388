"""Cases: several proxies, proxies that die or hang, transports, TLS, credentials and clocks."""

import functools
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.clients.conformance.client import TOPIC, Client, case, refusal, sdk_case, sent_ids, stored
from tests.services.fake_penstock import FakePenstock, FakeProxy, Fault
from tests.services.fake_store import message_thrift, producer_thrift
from tests.services.self_signed import self_signed
from tests.waiting import until

HOUR_S = 3_600.0
_certificates_lock = threading.Lock()


@sdk_case("several proxies are used in turn")
def in_turn(fake: FakePenstock, client: Client) -> None:
    for _ in range(4):
        assert client.code() == 0
    assert [len(proxy.calls) for proxy in fake.producers] == [2, 2]


@sdk_case("a proxy that is gone is passed over")
def proxy_gone(fake: FakePenstock, client: Client) -> None:
    fake.producers[0].close()
    assert [client.code() for _ in range(4)] == [0, 0, 0, 0]


@sdk_case("a proxy that dies under an open connection is passed over, and nothing is stored twice")
def proxy_dies(fake: FakePenstock, client: Client) -> None:
    for _ in range(2):
        client.one()
    fake.producers[1].close()
    assert [client.code() for _ in range(4)] == [0, 0, 0, 0]
    assert len(stored(fake)) == 6


@sdk_case("a proxy that comes back is used again")
def proxy_back(fake: FakePenstock, client: Client) -> None:
    client.open(producer=fake.producers[0].address)
    client.one()
    fake.producers[0].close()
    back = threading.Timer(
        0.2, lambda: fake.producers.append(FakeProxy(fake, producer_thrift.Producer, fake.producers[0].port))
    )
    back.start()
    assert client.code() == 0
    back.join()
    assert fake.producers[-1].calls and len(stored(fake)) == 2  # a slow first answer may be asked for again


@sdk_case("a proxy that hangs is left after the call timeout, with the same id")
def proxy_hangs(fake: FakePenstock, client: Client) -> None:
    client.open(call_timeout_ms=300)
    for proxy in fake.producers:
        proxy.faults.append(Fault(drop="hang"))
    began = time.monotonic()
    assert client.code(id="a") == 0
    assert time.monotonic() - began < 5
    assert sent_ids(fake) == ["a"] * len(sent_ids(fake))
    assert len(sent_ids(fake)) >= 2


@sdk_case("a pull passes over a proxy that is gone")
def consumer_proxy_gone(fake: FakePenstock, client: Client) -> None:
    client.one()
    fake.consumers[1].close()
    assert client.bodies() == [b"x"]
    assert client.bodies(wait_ms=0) == []


@sdk_case("a pull goes on at another proxy when its own dies while it waits")
def dies_in_a_pull(fake: FakePenstock, client: Client) -> None:
    def kill() -> None:
        until(lambda: any(proxy.calls for proxy in fake.consumers), "the pull", 10)
        (waiting,) = [proxy for proxy in fake.consumers if proxy.calls]
        waiting.close()
        until(lambda: all(proxy.calls for proxy in fake.consumers), "the pull at the other proxy", 10)
        with fake.store.changed:
            fake.store.store(message_thrift.Message(topic=TOPIC, body=b"x"))

    killing = threading.Thread(target=kill)
    killing.start()
    assert client.bodies(wait_ms=10_000) == [b"x"]
    killing.join()
    assert all(proxy.calls for proxy in fake.consumers)


@sdk_case("when no proxy answers a pull before its deadline it ends with UNAVAILABLE")
def no_consumer_proxy(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=200)
    for proxy in fake.consumers:
        proxy.close()
    assert refusal(client.pull, wait_ms=0) == 203


@sdk_case("when no proxy can be reached a send ends with UNAVAILABLE, without an attempt")
def no_producer_proxy(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=200)
    for proxy in fake.producers:
        proxy.close()
    result = client.one()
    assert (result["code"], result["attempts"]) == (203, 0)


@case("buffered transport works on the same ports")
def buffered_transport(fake: FakePenstock, client: Client) -> None:
    client.open(buffered=True)
    assert client.code() == 0
    assert client.bodies() == [b"x"]


def certificate(name: str) -> tuple[str, str]:
    """A self-signed certificate for `name` and its key, as PEM files; one for all languages of a session."""
    with _certificates_lock:
        return _made_certificate(name)


@functools.cache
def _made_certificate(name: str) -> tuple[str, str]:
    chain, key = self_signed(Path(tempfile.mkdtemp(prefix="penstock-conformance-")), name)
    return str(chain), str(key)


@contextmanager
def with_tls(client: Client, name: str, trusted: str, deadline_ms: int = 400) -> Iterator[FakePenstock]:
    """A fake with a certificate for `name`, and the client opened on it, trusting the certificate of `trusted`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(name))
    with FakePenstock(ssl_context=context) as fake:
        ends = {"producer": fake.producer_endpoints, "consumer": fake.consumer_endpoints}
        client.open(**ends, tls_ca=certificate(trusted)[0], deadline_ms=deadline_ms)
        yield fake


@case("a message and its delivery travel over TLS")
def tls(fake: FakePenstock, client: Client) -> None:
    with with_tls(client, "127.0.0.1", "127.0.0.1", deadline_ms=10_000):
        assert client.code() == 0
        assert client.bodies() == [b"x"]
        client.close()


@sdk_case("over TLS nothing is sent to a proxy whose authority is not trusted")
def tls_stranger(fake: FakePenstock, client: Client) -> None:
    with with_tls(client, "127.0.0.1", "stranger.example") as other:
        assert (client.code(), refusal(client.pull, wait_ms=0)) == (203, 203)
        assert other.producers[0].calls + other.consumers[0].calls == []


@sdk_case("over TLS nothing is sent to a proxy whose certificate has another name")
def tls_other_name(fake: FakePenstock, client: Client) -> None:
    with with_tls(client, "other.example", "other.example") as other:
        assert (client.code(), refusal(client.pull, wait_ms=0)) == (203, 203)
        assert other.producers[0].calls + other.consumers[0].calls == []


@case("a wrong secret is UNAUTHENTICATED, at send and at pull, and not retried")
def wrong_secret(fake: FakePenstock, client: Client) -> None:
    client.open(secret="wrong")
    assert (client.code(), refusal(client.pull)) == (104, 104)
    assert sum(len(proxy.calls) for proxy in fake.producers + fake.consumers) == 2


@sdk_case("one credential is used for many calls")
def credential(fake: FakePenstock, client: Client) -> None:
    for _ in range(4):
        client.one()
    signatures = {call.credential.signature for proxy in fake.producers for call in proxy.calls}
    assert len(signatures) == 1


@case("with a clock off by an hour a send and a pull are UNAUTHENTICATED, in both directions")
def wrong_clock(fake: FakePenstock, client: Client) -> None:
    for fake.clock_ahead_s in (HOUR_S, -HOUR_S):
        assert (client.code(), refusal(client.pull)) == (104, 104)


@case("a clock off by four minutes does not matter")
def near_clock(fake: FakePenstock, client: Client) -> None:
    for fake.clock_ahead_s in (240.0, -240.0):
        assert client.code() == 0
    assert client.bodies() == [b"x", b"x"]
