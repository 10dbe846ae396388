"""Cases: the time a call may take when no proxy answers.

One of a few tries has to keep the bound: a loaded machine would have to stall all of them to fail a case, while a
client that waits too long does so each time.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.e2e.clients.conformance.client import Client, refusal, sdk_case
from tests.e2e.clients.conformance.links import certificate, with_tls
from tests.services.fake_penstock import FakePenstock, Fault

DEADLINE_S = 0.3
# Connecting has no allowance, an answer has 0.5 s. Without the deadline a connect takes 1 s, a pull without answer 2 s.
UNREACHED_S_MAX = 0.8
UNANSWERED_S_MAX = 1.3
TRIES = 3


@contextmanager
def silent() -> Iterator[socket.socket]:
    """A listener that completes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener


@contextmanager
def black_hole() -> Iterator[socket.socket]:
    """A listener whose accept queue is full: a further connect hangs."""
    filling: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        try:
            for _ in range(100):
                filling.append(socket.create_connection(listener.getsockname(), timeout=0.5))
            raise AssertionError("the accept queue does not fill")
        except TimeoutError:
            yield listener
        finally:
            for each in filling:
                each.close()


def ends_within(most_s: float, call: Callable[[], None]) -> bool:
    """Whether one of a few calls ends in that time. None of them may end before the deadline."""
    for _ in range(TRIES):
        began = time.monotonic()
        call()
        taken_s = time.monotonic() - began
        assert taken_s >= DEADLINE_S * 0.9
        if taken_s < most_s:
            return True
    return False


def open_at(client: Client, listener: socket.socket, **changes: str) -> None:
    endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
    client.open(producer=endpoint, consumer=endpoint, deadline_ms=int(DEADLINE_S * 1_000), **changes)


def check_unreached(client: Client) -> None:
    """A send and a pull end by the deadline, as nothing was sent."""

    def send() -> None:
        result = client.one()
        assert (result["code"], result["attempts"]) == (203, 0)

    def pull() -> None:
        assert refusal(client.pull, wait_ms=0) == 203

    assert ends_within(UNREACHED_S_MAX, send)
    assert ends_within(UNREACHED_S_MAX, pull)


@sdk_case("a connect that hangs ends by the deadline, with UNAVAILABLE and without an attempt")
def unreached(fake: FakePenstock, client: Client) -> None:
    with black_hole() as listener:
        open_at(client, listener)
        check_unreached(client)


@sdk_case("a TLS handshake that hangs ends by the deadline, with UNAVAILABLE and without an attempt")
def handshake_unanswered(fake: FakePenstock, client: Client) -> None:
    with silent() as listener:
        open_at(client, listener, tls_ca=certificate("127.0.0.1")[0])
        check_unreached(client)


@sdk_case("a proxy that accepts and is silent costs the deadline and half a second, over all attempts together")
def unanswered(fake: FakePenstock, client: Client) -> None:
    def send() -> None:
        assert client.code() == 300

    def request() -> None:
        (result,) = client.send({}, reply_wait_ms=1)
        assert result["code"] == 300

    def pull() -> None:
        assert refusal(client.pull, wait_ms=0) == 203

    with silent() as listener:
        open_at(client, listener)
        assert ends_within(UNANSWERED_S_MAX, send)
        assert ends_within(UNANSWERED_S_MAX, request)
        assert ends_within(UNANSWERED_S_MAX, pull)
    with with_tls(client, "127.0.0.1", "127.0.0.1", deadline_ms=1_500) as other:
        for proxy in other.producers + other.consumers:
            proxy.faults.append(Fault(drop="hang", times=1_000))
        assert ends_within(1.2 + UNANSWERED_S_MAX, send)
        assert ends_within(1.2 + UNANSWERED_S_MAX, pull)


@sdk_case("a pull that is sent again waits no longer than to the deadline and its wait")
def late_pull(fake: FakePenstock, client: Client) -> None:
    client.open(deadline_ms=2_000, consumer=fake.consumers[0].address)
    fake.consumers[0].faults.append(Fault(code=203, retry_after_ms=2_500))
    assert client.pull(wait_ms=2_000) == []
    waits_ms = [call.wait_ms for call in fake.consumers[0].calls]
    assert (len(waits_ms), waits_ms[0], waits_ms[1] <= 1_500) == (2, 2_000, True)
