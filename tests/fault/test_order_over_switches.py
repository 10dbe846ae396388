"""Keyed messages of a group in order while masters are killed and hung: no key stands, and one message of each is in flight.

Short form by default; PENSTOCK_SWITCHES=50 repeats it so many times.
"""

import os
import signal
import threading
import time
from collections import Counter, defaultdict

import pytest

from common.contract import Ack, Code, Message
from tests.e2e.running import RunningPenstock
from tests.fault.gaps import quantile
from tests.fault.replicated.senders import CREDENTIAL_S
from tests.fault.stock_clients import LOST, Puller, Sender, retry_until_served
from tests.waiting import until

SWITCHES = int(os.environ.get("PENSTOCK_SWITCHES", "3"))
KEYS, CONSUMERS = 40, 4
SENDS_PER_S = 100
WORK_S = 0.03
"""Of a consumer with what it was given, so that some messages are always in flight."""
BACK_OFF_S = 0.02
"""After a refusal."""
P99_S_MAX = 2.5
STANDS_S_MAX = 10.0
"""No message may wait for so long: a forgotten acknowledgement would hold its key up for an hour."""
HOUR_MS = 3_600_000
SYNC = "SYNC_REPLICATION"


class Flow:
    """A producer and consumers of one group, and what they have seen."""

    def __init__(self, penstock: RunningPenstock) -> None:
        self._penstock = penstock
        self._who = penstock.application("shop", send=["*"], pull=["*"])
        penstock.run("topic", "create", "orders", "--queues", "4")
        penstock.run(
            "group", "create", "readers", "--topic", "orders", "--order", "key", "--invisible-ms", str(HOUR_MS)
        )
        self.sent_s: dict[tuple[str, int], float] = {}
        self.given_s: dict[tuple[str, int], float] = {}
        self.in_flight: dict[str, set[int]] = defaultdict(set)  # given, and no acknowledgement was sent yet
        self.together: list[str] = []
        self.answers: dict[int, tuple] = {}  # the latest of each consumer
        self.refused: Counter[int] = Counter()  # pulls, by code
        self.again = 0
        self._lock = threading.Lock()
        self._sends, self._pulls = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True)]
        self._threads += [threading.Thread(target=self._consume, daemon=True) for _ in range(CONSUMERS)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        number = 0
        while not self._sends.is_set():
            key = f"k{number % KEYS}"
            message = Message(topic="orders", key=key, body=str(number).encode())

            def taken(message: Message = message) -> bool:
                with Sender(self._penstock.producer, self._who) as sender:
                    return sender.send(message)[0].code == Code.OK

            retry_until_served(taken, "the message is stored", 60)
            self.sent_s.setdefault((key, number), time.monotonic())
            number += 1
            self._sends.wait(1 / SENDS_PER_S)

    def _consume(self) -> None:
        acks: list[Ack] = []
        while not self._pulls.is_set():
            try:
                with Puller(self._penstock.consumer, self._who) as puller:
                    while not self._pulls.is_set():
                        puller.renew(CREDENTIAL_S)
                        response = puller.pull("readers", "orders", max_messages=4, acks=acks, wait_ms=200)
                        self.answers[threading.get_ident()] = time.monotonic(), response.code, response.error
                        if response.code == Code.OK:
                            acks = self._take(response.deliveries or [])
                        else:
                            self.refused[response.code] += 1
                            self._pulls.wait(BACK_OFF_S)
            except LOST as error:  # the acknowledgements are sent again
                self.answers[threading.get_ident()] = time.monotonic(), repr(error)

    def _take(self, deliveries: list) -> list[Ack]:
        """Note what was given; the acknowledgements, which the next call sends."""
        with self._lock:
            for each in deliveries:
                key, number = each.message.key, int(each.message.body)
                self.again += (key, number) in self.given_s
                self.given_s.setdefault((key, number), time.monotonic())
                if earlier := [other for other in self.in_flight[key] if other < number]:
                    self.together.append(f"{key}: {number} beside {earlier}")
                self.in_flight[key].add(number)
        time.sleep(WORK_S)
        with self._lock:
            for each in deliveries:
                self.in_flight[each.message.key].discard(int(each.message.body))
        return [Ack(each.receipt) for each in deliveries]

    def end(self) -> None:
        """Send no more, and wait until all is given."""
        self._sends.set()
        self._threads[0].join(60)
        until(lambda: self.sent_s.keys() <= self.given_s.keys(), "all messages are given", 30)
        self.stop()

    def stop(self) -> None:
        self._sends.set()
        self._pulls.set()
        for thread in self._threads:
            thread.join(30)

    def flows_again(self) -> None:
        """Wait until more messages are given."""
        seen = len(self.given_s)
        try:
            until(lambda: len(self.given_s) >= seen + 50, "messages flow again", 20)
        except AssertionError as error:
            alive = [each.is_alive() for each in self._threads]
            now_s = time.monotonic()
            raise AssertionError(
                f"{error}: {now_s}: {alive}, {len(self.given_s) - seen} given, {self.answers}"
            ) from None

    @property
    def delays_s(self) -> list[float]:
        """From the answer to the send to the first delivery."""
        return sorted(max(0.0, self.given_s[each] - at_s) for each, at_s in self.sent_s.items())


@pytest.fixture
def penstock(tmp_path):
    made = RunningPenstock(tmp_path / "data", "--replicas", "2").start()
    yield made
    made.end()


@pytest.fixture
def flow(penstock):
    made = Flow(penstock)
    yield made
    made.stop()


def strike(penstock: RunningPenstock, number: int) -> None:
    """Kill the master, or have it hang for two seconds; wait until another one leads and both are in sync."""

    def rows() -> dict:
        return {row["broker"]: row for row in penstock.run("broker", "list")}

    def master() -> str | None:
        return next((name for name, row in rows().items() if row["role"] == "master"), None)

    until(lambda: {row["state"] for row in rows().values()} == {SYNC} and master(), "both brokers are in sync", 40)
    first = master()
    assert first is not None
    pid = penstock.kill(first, signal.SIGSTOP if number % 3 == 2 else signal.SIGKILL)
    try:
        until(lambda: master() not in (first, None), "another broker leads", 20)
    finally:
        if number % 3 == 2:
            os.kill(pid, signal.SIGCONT)


def test_no_key_stands_and_no_two_messages_of_one_are_in_flight_over_switches(penstock, flow):
    until(lambda: len(flow.given_s) >= 50, "messages flow", 30)
    for number in range(SWITCHES):
        strike(penstock, number)
        flow.flows_again()
    flow.end()
    delays_s = flow.delays_s
    p50, p99 = quantile(delays_s, 0.5), quantile(delays_s, 0.99)
    print(
        f"\n{SWITCHES} switches, {len(delays_s)} messages: first delivery p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"longest {delays_s[-1]:.2f} s; {flow.again} given again, {len(flow.together)} beside an earlier one; "
        f"pulls refused: {dict(flow.refused)}"
    )
    assert flow.together == []
    assert flow.refused.keys() <= {Code.UNAVAILABLE, Code.OVERLOADED}
    assert p99 <= P99_S_MAX and delays_s[-1] <= STANDS_S_MAX
