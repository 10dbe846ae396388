"""Messages that no consumer can process, while consumers hang and the engine is killed.

Each ends as done or as a dead letter, and comes back by a redrive.
"""

import threading
import time
from collections import Counter

import pytest

from common.contract import Ack, Code, Durability, Message, Verdict
from tests.e2e.running import RunningPenstock
from tests.fault.stock_clients import LOST, Puller, Sender, retry_until_served
from tests.waiting import until

MESSAGES = 300
GROUP, TOPIC = "readers", "orders"
KILLS = 2


@pytest.fixture(scope="module")
def penstock(tmp_path_factory):
    made = RunningPenstock(tmp_path_factory.mktemp("dead") / "data").start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def shop(penstock):
    shop = penstock.application("shop", send=["*"], pull=["*"], dead_letters=["*"])
    penstock.run("topic", "create", TOPIC, "--queues", "4", "--durability", "fsync")
    penstock.run("group", "create", GROUP, "--attempts-max", "2", "--retry", "50", "--invisible-ms", "1000")
    return shop


def is_poison(number: int) -> bool:
    return number % 5 == 0


class Consumers:
    """Threads that do what can be done, and reject, retry or ignore the rest by turns."""

    def __init__(self, penstock, shop, can_do, count=3):
        self._penstock, self._shop, self._can_do = penstock, shop, can_do
        self.done: set[str] = set()
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        assert self.errors == []

    def _guarded(self) -> None:
        while not self._stop.is_set():
            try:
                with Puller(self._penstock.consumer, self._shop) as puller:
                    self._work(puller)
            except LOST:
                time.sleep(0.05)
            except BaseException as error:
                self.errors.append(error)
                return

    def _work(self, puller) -> None:
        acks, pending = [], []
        while not self._stop.is_set() or acks:
            response = puller.pull(GROUP, TOPIC, max_messages=16, acks=acks, wait_ms=100)
            if response.code != Code.OK:
                continue
            taken = [result.code == Code.OK for result in response.ack_results]
            self.done.update(name for name, was_taken in zip(pending, taken, strict=True) if was_taken and name)
            acks, pending = [], []
            for delivery in response.deliveries:
                if ack := self._verdict(delivery):
                    acks.append(ack)
                    pending.append(delivery.id if ack.verdict == Verdict.DONE else None)

    def _verdict(self, delivery):
        number = int(delivery.message.body)
        if self._can_do(number):
            return Ack(delivery.receipt, Verdict.DONE)
        how = number // 5 % 3
        if how == 2:
            return None
        return Ack(delivery.receipt, Verdict.REJECT if how == 0 else Verdict.RETRY, reason=f"poison {number}")


def dead_letters(penstock):
    answer = penstock.call("group", "dead-letters", "list", GROUP, "--limit", "10000", "-o", "json")
    if answer.returncode == 3:  # none yet
        return []
    return penstock.run("group", "dead-letters", "list", GROUP, "--limit", "10000")


def test_whatever_dies_each_message_ends_as_done_or_as_a_dead_letter_and_a_redrive_brings_it_back(penstock, shop):
    with Sender(penstock.producer, shop) as sender:
        retry_until_served(
            lambda: sender.one(TOPIC, b"1", id="first").code in (Code.OK, Code.DUPLICATE), "the topic is known"
        )
        messages = [Message(topic=TOPIC, body=b"%d" % n, id=f"m{n}") for n in range(MESSAGES)]
        assert {result.code for result in sender.send(*messages, durability=Durability.FSYNC)} == {Code.OK}
    consumers = Consumers(penstock, shop, can_do=lambda number: not is_poison(number))
    for _ in range(KILLS):
        time_of_kill = len(consumers.done)
        until(
            lambda seen=time_of_kill: len(consumers.done) > seen or len(consumers.done) >= MESSAGES * 4 // 5, "progress"
        )
        penstock.wait_replaced("engine", penstock.kill("engine"))
    ids = {f"m{n}" for n in range(MESSAGES)}
    poison = {f"m{n}" for n in range(MESSAGES) if is_poison(n)}

    def over():
        dead = {row["id"] for row in dead_letters(penstock)}
        return ids <= dead | consumers.done and poison <= dead

    until(over, "every message is done or dead", 40)
    consumers.stop()
    letters = dead_letters(penstock)
    assert poison.isdisjoint(consumers.done)
    assert {row["topic"] for row in letters} == {TOPIC}
    for row in letters:
        number = int(row["id"][1:]) if row["id"] != "first" else 1
        assert (row["cause"] == "rejected" and is_poison(number)) or int(row["attempts"]) >= 2
    origins = {(row["queue"], row["message_offset"]): row["id"] for row in letters}
    assert len(origins) == len(set(origins.values())) == len({row["id"] for row in letters})

    dead = {row["id"] for row in letters}
    healed = Consumers(penstock, shop, can_do=lambda number: True)
    redriving = threading.Thread(
        target=penstock.call, args=("group", "dead-letters", "redrive", GROUP, "--rate", "100")
    )
    redriving.start()
    until(lambda: len(healed.done) > 5, "the redrive has begun")
    penstock.wait_replaced("engine", penstock.kill("engine"))
    redriving.join(60)
    until(lambda: penstock.call("group", "dead-letters", "redrive", GROUP).returncode == 0, "the redrive goes on")
    until(lambda: dead <= healed.done, "all dead letters are done", 20)
    healed.stop()
    assert dead_letters(penstock) == []


def test_the_dead_letters_of_a_group_are_pulled_by_who_has_a_grant_for_them(penstock, shop):
    other = penstock.application("other", pull=["others", "strict", TOPIC])
    with Sender(penstock.producer, shop) as sender, Puller(penstock.consumer, shop) as puller:
        retry_until_served(lambda: sender.one(TOPIC, b"7").code == Code.OK, "a send")
        rejected = Counter[str]()

        def reject():
            response = puller.pull("strict", TOPIC, max_messages=1000, wait_ms=100)
            acks = [Ack(d.receipt, Verdict.REJECT, reason="no") for d in response.deliveries]
            if acks:
                results = puller.pull("strict", max_messages=0, acks=acks, topics=[TOPIC]).ack_results
                rejected.update(d.id for d in response.deliveries)
                assert {each.code for each in results} == {Code.OK}
            return rejected

        until(reject, "something to reject")
        found = until(lambda: puller.pull("strict", "_dlq.strict", wait_ms=100).deliveries, "its dead letters")
        assert found[0].message.topic == "_dlq.strict"
        assert found[0].message.properties["dead_letter_reason"] == "no"
        assert sender.one("_dlq.strict").code == Code.UNKNOWN_TOPIC
    with Puller(penstock.consumer, other) as puller:
        until(lambda: puller.pull("others", TOPIC).code == Code.OK, "the application is known")
        assert puller.pull("others", "_dlq.strict").code == Code.FORBIDDEN


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("list", "nobody"), 3),
        (("redrive", GROUP, "--to", "nowhere"), 3),
        (("redrive", GROUP, "--to", "_dlq.x"), 2),
        (("redrive", GROUP, "--rate", "0"), 2),
        (("purge", GROUP, "--cause", "hunger"), 2),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(penstock, shop, command, code):
    answer = penstock.call("group", "dead-letters", *command)
    assert answer.returncode == code
    assert b"Traceback" not in answer.stderr
