"""`kill -9` of every process of a running Penstock under load: acknowledged messages are there, and no others are
invented.

Short form by default; PENSTOCK_KILLS=200 repeats the engine's kills so many times.
"""

import os
import random
import signal
import time

import pytest

from common.contract import Ack, Code, Durability, Message
from tests.e2e.running import RunningPenstock, is_alive
from tests.fault.history import UNKNOWN
from tests.fault.load import Producers
from tests.fault.log_tail import DAMAGES, damage_tail
from tests.fault.stock_clients import Puller, Sender, knows, retry_until_served
from tests.fault.verdict import assert_nothing_lost_or_invented, pull_all
from tests.waiting import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "5"))
QUEUES = 4
ACKS_BETWEEN_KILLS = 150
PROGRESS_S = (
    0.2  # docs/design/0003-delivery.md: what was acknowledged in the last interval may be repeated after a crash
)
NOISE_S = 0.5


@pytest.fixture
def penstock(tmp_path):
    """One a test: the supervisor waits longer before each restart of a process that keeps dying."""
    made = RunningPenstock(tmp_path / "data").start()
    yield made
    made.end()


@pytest.fixture
def shop(penstock):
    return penstock.application("shop", send=["*"], pull=["*"])


@pytest.fixture
def topic(penstock, shop):
    penstock.run("topic", "create", "orders", "--queues", str(QUEUES), "--durability", "fsync")
    return "orders"


@pytest.fixture
def producers(penstock, shop, topic):
    made = Producers(lambda: penstock.producer, shop, topic)
    yield made
    made.stop()


def start(producers):
    """Load, beginning with the first message that the proxy takes: a topic is known a moment after it was made."""
    producers.start().wait_more(1)
    return producers


def test_a_killed_engine_keeps_every_acknowledged_message_and_invents_none(penstock, shop, topic, producers):
    start(producers)
    for _ in range(KILLS):
        producers.wait_more(ACKS_BETWEEN_KILLS)
        penstock.wait_replaced("engine", penstock.kill("engine"))
    producers.wait_more(ACKS_BETWEEN_KILLS)
    producers.stop()
    log = assert_nothing_lost_or_invented(penstock, shop, topic, producers.sent)
    assert log.acknowledged > KILLS * ACKS_BETWEEN_KILLS
    assert any(each.outcome != "ok" for each in producers.sent), "no kill was felt by any producer"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_log_with_a_damaged_tail_keeps_every_acknowledged_message(penstock, shop, topic, producers, how):
    chance = random.Random(f"{how}.{KILLS}")
    for _ in range(max(2, KILLS // 3)):
        start(producers).wait_more(ACKS_BETWEEN_KILLS)
        supervisor = penstock.kill("up", signal.SIGSTOP)  # so that nobody starts the engine before its log is damaged
        try:
            engine = penstock.kill("engine")
            until(lambda pid=engine: not is_alive(pid), "the engine is gone")
            producers.stop()
            print(damage_tail(penstock.data / "engine" / "log", topic, producers.sent, how, chance))
        finally:
            os.kill(supervisor, signal.SIGCONT)
        penstock.wait_replaced("engine", engine)
    start(producers).wait_more(ACKS_BETWEEN_KILLS)
    producers.stop()
    assert_nothing_lost_or_invented(penstock, shop, topic, producers.sent)


def test_a_killed_producer_proxy_loses_nothing_that_it_answered(penstock, shop, topic, producers):
    start(producers)
    for _ in range(3):
        producers.wait_more(ACKS_BETWEEN_KILLS)
        penstock.wait_replaced("producer_proxy", penstock.kill("producer_proxy"))
    producers.wait_more(ACKS_BETWEEN_KILLS)
    producers.stop()
    assert_nothing_lost_or_invented(penstock, shop, topic, producers.sent)
    assert any(each.outcome == UNKNOWN for each in producers.sent), "no kill was felt by any producer"


def send_batch(penstock, shop, topic, count):
    with Sender(penstock.producer, shop) as sender:
        retry_until_served(lambda: sender.one(topic, b"first", key="k").code == Code.OK, "the topic is known")
        messages = [Message(topic=topic, body=b"%d" % n, key="k", id=f"{topic}.{n}") for n in range(count)]
        assert {result.code for result in sender.send(*messages, durability=Durability.FSYNC)} == {Code.OK}


def test_a_killed_consumer_proxy_gives_back_what_was_leased_and_nothing_that_was_acknowledged(penstock, shop, topic):
    send_batch(penstock, shop, topic, 60)
    with Puller(penstock.consumer, shop) as puller:
        held = until(lambda: puller.pull("g", topic, max_messages=40, invisible_ms=2_000).deliveries, "a first pull")
        done = [Ack(delivery.receipt) for delivery in held[:15]]
        assert {r.code for r in puller.pull("g", max_messages=0, acks=done).ack_results} == {Code.OK}
    penstock.wait_replaced("consumer_proxy", penstock.kill("consumer_proxy"))
    again = pull_all(penstock, shop, topic, "g", [f"{topic}.{n}" for n in range(60) if n not in range(14)])
    attempts = {each.id: each.attempt for each in again}
    assert not attempts.keys() & {delivery.id for delivery in held[:15]}, "an acknowledged message came again"
    assert {attempts[delivery.id] for delivery in held[15:]} == {2}
    assert {each.attempt for each in again if each.id not in {d.id for d in held}} == {1}


def test_after_a_killed_engine_only_the_last_intervals_acknowledgements_are_repeated(penstock, shop, topic):
    send_batch(penstock, shop, topic, 1000)
    acknowledged_at: dict[str, float] = {}
    acks, held = [], []
    with Puller(penstock.consumer, shop) as puller:
        while len(acknowledged_at) < 700:  # several progress intervals
            response = puller.pull("g", topic, max_messages=1, acks=acks, wait_ms=50)
            assert response.code == Code.OK
            acknowledged_at |= {delivery.id: time.monotonic() for delivery in held}
            held = response.deliveries
            acks = [Ack(delivery.receipt) for delivery in held]
        killed_at, killed = time.monotonic(), penstock.kill("engine")
    penstock.wait_replaced("engine", killed)
    left = [f"{topic}.{n}" for n in range(1000) if f"{topic}.{n}" not in acknowledged_at]
    again = {each.id for each in pull_all(penstock, shop, topic, "g", left)}
    repeated = [killed_at - acknowledged_at[each] for each in again & acknowledged_at.keys()]
    print(f"{len(acknowledged_at)} acknowledged, {len(repeated)} repeated, the oldest {max(repeated, default=0):.3f} s")
    assert max(repeated, default=0) < PROGRESS_S + NOISE_S
    assert set(left) <= again


def test_a_killed_up_takes_its_processes_along_and_the_next_one_serves_all_that_was_acknowledged(
    penstock, shop, topic, producers
):
    for _ in range(2):
        start(producers).wait_more(ACKS_BETWEEN_KILLS)
        pids = dict(penstock.refresh()["pids"])
        penstock.kill("up")
        until(lambda pids=pids: not any(map(is_alive, pids.values())), "its processes have ended too", 5)
        producers.stop()
        penstock.ready_file.unlink()
        penstock.start()
    start(producers).wait_more(ACKS_BETWEEN_KILLS)
    producers.stop()
    assert_nothing_lost_or_invented(penstock, shop, topic, producers.sent)


def test_a_proxy_that_meets_a_dead_engine_says_so_in_time_and_serves_again(penstock, shop, topic):
    with Sender(penstock.producer, shop) as sender, Puller(penstock.consumer, shop) as puller:
        knows(sender, topic)
        supervisor = penstock.kill("up", signal.SIGSTOP)
        try:
            engine = penstock.kill("engine")
            until(lambda: not is_alive(engine), "the engine is gone")
            refused = until(lambda: _refusal(sender.one(topic)), "a send is refused")
            assert (refused.code, bool(refused.error)) == (Code.UNAVAILABLE, True)
            began = time.monotonic()
            assert sender.one(topic).code == Code.UNAVAILABLE
            pulled = until(lambda: _refusal(puller.pull("g", topic)), "a pull is refused")
            assert (pulled.code, bool(pulled.error)) == (Code.UNAVAILABLE, True)
            assert refused.retry_after_ms and pulled.retry_after_ms
            assert time.monotonic() - began < 3
        finally:
            os.kill(supervisor, signal.SIGCONT)
        penstock.wait_replaced("engine", engine)
        until(lambda: sender.one(topic).code == Code.OK, "the same connection sends again")
        until(lambda: puller.pull("g", topic).code == Code.OK, "the same connection pulls again")


def _refusal(answer):
    return answer if answer.code not in (Code.OK, Code.TIMEOUT) else None


def test_what_was_acknowledged_before_a_kill_is_a_duplicate_after_it_whoever_sends_it_again(penstock, shop, topic):
    places = {}
    for round_number in range(max(2, KILLS // 2)):
        with Sender(penstock.producer, shop) as sender:
            retry_until_served(lambda s=sender: s.one(topic, b"first").code == Code.OK, "the topic is known")
            messages = [Message(topic=topic, body=b"x", id=f"{round_number}.{n}") for n in range(500)]
            for result in sender.send(*messages, durability=Durability.FSYNC):
                assert result.code == Code.OK
                places[result.id] = (result.queue, result.offset)
        for name in ("engine", "producer_proxy"):
            penstock.wait_replaced(name, penstock.kill(name))
        with Sender(penstock.producer, shop) as sender:
            retry_until_served(lambda s=sender: s.one(topic, b"served").code == Code.OK, "sends are taken again")
            for start in range(0, len(places), 1000):
                again = [
                    Message(topic=topic, body=b"x", key=shown, id=shown) for shown in list(places)[start : start + 1000]
                ]
                for result in sender.send(*again, durability=Durability.FSYNC):
                    assert (result.code, result.queue, result.offset) == (Code.DUPLICATE, *places[result.id])
