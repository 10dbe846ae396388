"""The load loop against a server whose answers are known."""

import itertools
import threading

import pytest

pytest.importorskip("bench._load")

from bench._histogram import Histogram

from bench.ceiling import measure
from bench.errors import RunError
from bench.generator import run_load
from common.contract import AckResult, Code, PullResponse, encode_exception, encode_reply
from tests.unit.bench.stub_server import StubServer, all_ok, delivery, sent, settings


def stall(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_every_message_is_sent_and_counted_once_up_to_the_limit():
    received = []

    def store(name, seqid, request):
        received.append(len(request.messages))
        return all_ok(name, seqid, request)

    with StubServer(store) as server:
        loaded = run_load(settings(batch=7), server.target, messages_max=100)
    assert sum(received) == loaded.counts["messages"] == loaded.counts["sent_total"] == 100
    assert loaded.counts["codes"] == {0: 100}
    assert loaded.counts["calls"] == len(loaded.latency) == len(received) == 15


def test_codes_are_counted_for_each_message():
    with StubServer(lambda name, seqid, request: sent([Code.OK, Code.DUPLICATE, Code.RATE_LIMITED])) as server:
        loaded = run_load(settings(batch=3), server.target, messages_max=60)
    assert loaded.counts["codes"] == {0: 20, 2: 20, 200: 20}


def test_the_window_opens_after_the_warm_up_and_closes_by_time():
    phases = []
    with StubServer(all_ok) as server:
        loaded = run_load(settings(warmup_s=0.05, seconds=0.2), server.target, phases.append)
    assert phases == [True, False]
    assert 0.2 <= loaded.counts["window_s"] < 1.0
    assert 0 < loaded.counts["messages"] < loaded.counts["sent_total"]


def test_an_open_loop_sends_at_its_rate():
    with StubServer(all_ok) as server:
        loaded = run_load(settings(rate=500, spacing="even", seconds=0.4), server.target)
    assert loaded.counts["messages"] == pytest.approx(200, abs=1)
    assert loaded.counts["unsent"] == 0


def test_a_stall_is_charged_to_every_call_that_was_planned_in_it():
    calls = itertools.count()
    lock = threading.Lock()

    def store(name, seqid, request):
        with lock:  # one call at a time: the stall holds back both connections
            if next(calls) == 50:
                stall(0.1)
        return all_ok(name, seqid, request)

    with StubServer(store) as server:
        loaded = run_load(settings(rate=1000, spacing="even", seconds=0.5), server.target)
    slow = [share for share in range(1, 501) if loaded.latency.percentile(share / 500) > 10_000_000]
    assert loaded.counts["messages"] == pytest.approx(500, abs=1)
    assert loaded.latency.max_ns >= 95_000_000
    # A thousand a second for 100 ms: 100 calls fell due, 90 of them more than 10 ms before its end. Two were in flight.
    assert len(slow) >= 80
    assert (
        loaded.lag.percentile(0.5) < 20_000_000
    )  # waiting for a connection is the server's doing, not the generator's


def test_messages_that_could_not_be_sent_in_time_are_told():
    released = threading.Event()

    def store(name, seqid, request):
        released.wait(0.05)
        return all_ok(name, seqid, request)

    with StubServer(store) as server:
        loaded = run_load(settings(rate=2000, seconds=0.2, timeout_s=0.3), server.target)
    assert loaded.counts["unsent"] > 300
    assert loaded.counts["unsent"] + loaded.counts["messages"] == pytest.approx(400, abs=60)


def closing_after(count):
    calls = itertools.count(1)
    return lambda name, seqid, request: None if next(calls) > count else all_ok(name, seqid, request)


BROKEN = {
    "closed by the server": closing_after(20),
    "the answer is not one to this call": lambda name, seqid, request: encode_reply(name, seqid + 1, sent([0])),
    "another number of results": lambda name, seqid, request: sent([0, 0]),
    "answered by an exception: .*the frame is odd": lambda name, seqid, request: encode_exception(
        name, seqid, 7, "the frame is odd"
    ),
    "no answer in time": lambda name, seqid, request: stall(1.0),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_connection_that_fails_ends_the_run_with_a_sentence(said):
    with StubServer(BROKEN[said]) as server, pytest.raises(RunError, match=said):
        run_load(settings(timeout_s=0.2), server.target)


def test_a_server_that_is_not_there_is_told():
    with StubServer(all_ok) as server:
        target = server.target
    with pytest.raises(RunError, match="refused"):
        run_load(settings(), target)


class Shelf:
    """Hands out numbered messages once and notes what is acknowledged."""

    def __init__(self, count: int, body: bytes = b"x" * 128):
        self.left = [b"receipt-%d" % number for number in range(count)]
        self.acknowledged: list[bytes] = []
        self.body = body
        self.lock = threading.Lock()

    def __call__(self, name, seqid, request):
        if name == "send":
            return all_ok(name, seqid, request)
        with self.lock:
            self.acknowledged += [ack.receipt for ack in request.acks or ()]
            taken, self.left = self.left[: request.max_messages], self.left[request.max_messages :]
        results = [AckResult(code=Code.OK) for _ in request.acks or ()]
        return PullResponse(
            code=0, deliveries=[delivery(receipt, self.body, 2) for receipt in taken], ack_results=results
        )


def test_every_delivery_is_acknowledged_once_on_the_next_pull_or_the_last():
    shelf = Shelf(1000)
    receipts = list(shelf.left)
    with StubServer(shelf) as server:
        loaded = run_load(settings(mode="pull", consumers=3, max_messages=7), server.target)
    assert sorted(shelf.acknowledged) == sorted(receipts)
    assert loaded.counts["deliveries_total"] == loaded.counts["redelivered"] == 1000
    assert loaded.counts["delivered_bytes"] == 128_000


def test_consumers_that_do_not_acknowledge_send_no_receipts():
    shelf = Shelf(100)
    with StubServer(shelf) as server:
        loaded = run_load(settings(mode="pull", acknowledge=False), server.target)
    assert (shelf.acknowledged, loaded.counts["deliveries"]) == ([], 100)


def test_a_drain_ends_at_the_expected_count_and_delivers_the_acknowledgements():
    shelf = Shelf(1000)
    with StubServer(shelf) as server:
        loaded = run_load(settings(mode="pull", max_messages=10), server.target, deliveries_max=500)
    assert loaded.counts["deliveries_total"] == len(shelf.acknowledged) == 500


def test_a_refused_pull_ends_the_run_with_its_code():
    refusal = PullResponse(code=Code.FORBIDDEN, deliveries=[], ack_results=[], error="not your group")
    with StubServer(lambda *_: refusal) as server, pytest.raises(RunError, match=r"code 105: .*not your group"):
        run_load(settings(mode="pull"), server.target)


def test_what_is_sent_is_recognised_when_delivered_and_its_way_is_timed():
    waiting: list[bytes] = []
    numbers = itertools.count()

    def pass_on(name, seqid, request):
        if name == "send":
            waiting.extend(message.body for message in request.messages)
            return all_ok(name, seqid, request)
        taken = [waiting.pop(0) for _ in range(min(len(waiting), 50))]
        results = [AckResult(code=Code.OK) for _ in request.acks or ()]
        return PullResponse(
            code=0, deliveries=[delivery(b"%d" % next(numbers), body) for body in taken], ack_results=results
        )

    with StubServer(pass_on) as server:
        loaded = run_load(settings(mode="both", connections=1, consumers=1, seconds=0.3, size=40), server.target)
    assert 0 < len(loaded.end_to_end) <= loaded.counts["deliveries"] <= loaded.counts["sent_total"]
    assert 0 < loaded.end_to_end.percentile(0.5) < 300_000_000
    assert loaded.counts["wrong_size"] == 0


def test_a_body_of_another_size_is_counted():
    with StubServer(Shelf(10, b"short")) as server:
        loaded = run_load(settings(mode="both", consumers=1, seconds=0.2, size=40), server.target)
    assert loaded.counts["wrong_size"] == 10


def test_large_calls_go_out_and_large_answers_come_in_whole():
    with StubServer(Shelf(300, b"x" * 40_000)) as server:
        pulled = run_load(settings(mode="pull", max_messages=100), server.target)
        loaded = run_load(settings(batch=100, size=100_000), server.target, messages_max=400)
    assert (pulled.counts["delivered_bytes"], loaded.counts["codes"]) == (12_000_000, {0: 400})


def test_the_generators_own_code_costs_a_call_little_beside_what_it_is_to_measure():
    cost = measure("calls of 1", seconds=0.5)
    # Processor time, not calls a second: the machine may be busy with anything.
    assert cost.calls > 0 and cost.user_s / cost.calls < 2e-5


def test_histograms_of_a_run_are_the_shared_kind():
    with StubServer(all_ok) as server:
        assert isinstance(run_load(settings(), server.target, messages_max=1).latency, Histogram)
