"""`penstock up --groups 3`: real engines that share the queues; one of them is stopped, killed, and comes back."""

import os
import signal
import subprocess
import threading
import time
import zlib
from collections import Counter

import pytest

from common.contract import Ack, Code, Durability, Message, Verdict
from penstock.terminal.instance import Instance
from penstock.up.status import PROXIES, breakers
from tests.e2e.running import PENSTOCK
from tests.fault.stock_clients import Puller, Sender, knows
from tests.waiting import until

GROUPS = 3
QUEUES = 12
NOISE = 3.0  # of a shared test machine


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory("--groups", str(GROUPS))


@pytest.fixture(scope="module")
def shop(penstock):
    return penstock.application("shop", send=["*"], pull=["*"], dead_letters=["*"])


@pytest.fixture
def topic(penstock, shop, request):
    name = f"t-{zlib.crc32(request.node.name.encode()):08x}"
    penstock.run("topic", "create", name, "--queues", str(QUEUES), "--durability", "fsync")
    with Sender(penstock.producer, shop) as sender:
        knows(sender, name)
    return name


def state_of(penstock, proxy: str, group: str) -> str:
    return breakers(penstock.refresh(), proxy)[group]


def wait_all_closed(penstock) -> None:
    def closed(proxy):
        states = breakers(penstock.refresh(), proxy)
        return len(states) == GROUPS and set(states.values()) == {"closed"}

    until(lambda: all(map(closed, PROXIES)), "every breaker is closed", 20)


class Stream(threading.Thread):
    """Sends unordered messages one by one until told to stop."""

    def __init__(self, penstock, who, topic, **fields):
        super().__init__(daemon=True)
        self.results, self.seconds, self.bodies = [], [], []
        self._stopping = threading.Event()
        self._penstock, self._who, self._topic, self._fields = penstock, who, topic, fields
        self.start()

    def run(self):
        with Sender(self._penstock.producer, self._who) as sender:
            while not self._stopping.is_set():
                body = b"%d-%d" % (id(self), len(self.results))
                began = time.monotonic()
                (result,) = sender.send(Message(topic=self._topic, body=body), **self._fields)
                self.seconds.append(time.monotonic() - began)
                self.results.append(result)
                self.bodies.append(body)

    def wait_more(self, count):
        goal = len(self.results) + count
        until(lambda: len(self.results) >= goal, f"{count} more sends")

    def end(self):
        self._stopping.set()
        self.join(10)
        assert not self.is_alive()


def drain(penstock, who, topic, group="drain"):
    """Everything that is there, acknowledged; how often each body came."""
    found, acks, empty = Counter(), [], 0
    with Puller(penstock.consumer, who) as puller:
        while empty < 2 or acks:
            response = puller.pull(group, topic, max_messages=500, wait_ms=200, acks=acks)
            assert response.code == Code.OK, response.error
            assert {result.code for result in response.ack_results} <= {Code.OK}
            acks = [Ack(delivery.receipt) for delivery in response.deliveries]
            found.update(delivery.message.body for delivery in response.deliveries)
            empty = 0 if response.deliveries else empty + 1
    return found


def test_the_ready_file_names_every_group_and_the_configuration_their_addresses(penstock):
    assert penstock.facts["broker_groups"] == {"group-1": "engine", "group-2": "engine-2", "group-3": "engine-3"}
    engines = Instance(penstock.data, None, {}).engines()
    assert engines == Instance(penstock.data, penstock.facts["config"], {}).engines() and len(engines) == GROUPS
    processes = {each["name"]: each for each in penstock.run("status")["processes"]}
    assert {"engine", "engine-2", "engine-3"} < set(processes)
    assert all(each.get("ready", "yes") == "yes" and not each.get("behind") for each in processes.values())


def test_messages_lie_in_every_group_and_are_pulled_acknowledged_and_read_from_all(penstock, shop, topic):
    with Sender(penstock.producer, shop) as sender:
        sent = [b"%d" % number for number in range(300)]
        results = sender.send(*[Message(topic=topic, body=body, key=body.decode()) for body in sent])
    assert {result.code for result in results} == {Code.OK}
    found = drain(penstock, shop, topic)
    assert all(found[body] == 1 for body in sent)
    rows = penstock.run("group", "lag", "drain", "--topic", topic)
    assert [row["queue"] for row in rows] == list(range(QUEUES)) and sum(row["lag"] for row in rows) == 0
    assert {row["broker_group"] for row in rows} == {"group-1", "group-2", "group-3"}
    with Puller(penstock.consumer, shop) as puller:
        assert {each.message.body for each in puller.read_all("readers", topic, QUEUES)} >= set(sent)
    assert penstock.run("topic", "list", "--auto-created", "--prefix", topic) == [
        {"name": topic, "id": None, "queues": QUEUES}
    ]
    moved = penstock.run("group", "reset", "drain", "--topic", topic, "--to", "earliest")
    assert [row["queue"] for row in moved] == list(range(QUEUES))
    assert sum(row["old"] - row["new"] for row in moved) >= 300
    again = drain(penstock, shop, topic)
    assert all(again[body] == 1 for body in sent)


def test_a_message_that_comes_to_any_group_ends_a_waiting_pull_at_once(penstock, shop, topic):
    drain(penstock, shop, topic, "waiting")
    with Puller(penstock.consumer, shop) as puller, Sender(penstock.producer, shop) as sender:
        for number in range(6):
            timer = threading.Timer(0.1, sender.one, (topic, b"%d" % number), {"key": f"key-{number}"})
            timer.start()
            began = time.monotonic()
            response = puller.pull("waiting", topic, wait_ms=5000)
            assert [each.message.body for each in response.deliveries] == [b"%d" % number]
            assert time.monotonic() - began < 0.1 + 0.2 * NOISE
            timer.join()
            puller.pull("waiting", max_messages=0, acks=[Ack(each.receipt) for each in response.deliveries])


def test_another_number_of_groups_is_refused_for_a_directory_that_holds_messages(penstock, tmp_path):
    done = penstock.call("up", "--groups", "2")
    assert done.returncode == 4, "it is running"
    (tmp_path / "engine" / "log").mkdir(parents=True)
    command = [*PENSTOCK, "up", "--data", str(tmp_path), "--groups", "2"]
    refused = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert b"has 1 broker group, whose number cannot change" in refused.stderr and refused.stderr.count(b"\n") == 1
    assert refused.returncode == 4


def test_first_messages_to_topics_do_not_wait_for_a_stopped_engine(penstock, shop):
    """Nothing is sent to it before, so no breaker knows: the first question about a topic finds out."""
    wide, narrow = [f"first-wide-{number}" for number in range(6)], [f"first-narrow-{number}" for number in range(12)]
    penstock.run("topic", "create", *wide, "--queues", str(QUEUES), "--durability", "memory")
    penstock.run("topic", "create", *narrow, "--queues", "1", "--durability", "memory")
    wait_all_closed(penstock)
    pid = penstock.refresh()["pids"]["engine-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        seconds, found = [], Counter()
        with Sender(penstock.producer, shop) as sender:
            for name in wide + narrow:
                began = time.monotonic()
                result = sender.one(name)
                seconds.append(time.monotonic() - began)
                found[name in wide, result.code] += 1
                assert result.code == Code.OK or result.retry_after_ms > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    assert found[True, Code.OK] == len(wide), "another group takes them"
    assert found[False, Code.OK] + found[False, Code.OVERLOADED] == len(narrow), found
    assert found[False, Code.OK] and found[False, Code.OVERLOADED], "some live in the stopped engine"
    assert sorted(seconds)[-2] < 0.1 * NOISE, "at most the first waited for it"
    wait_all_closed(penstock)
    with Sender(penstock.producer, shop) as sender:
        until(lambda: {sender.one(name).code for name in narrow} == {Code.OK}, "it is used again")


def test_with_one_engine_stopped_sends_and_pulls_go_on_and_it_is_let_back_in(penstock, shop, topic):
    stream = Stream(penstock, shop, topic, durability=Durability.MEMORY)
    stream.wait_more(200)
    pid = penstock.refresh()["pids"]["engine-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: state_of(penstock, "producer_proxy", "group-2") == "open", "the producer proxy isolates it")
        before = len(stream.seconds)
        stream.wait_more(300)
        during = sorted(stream.seconds[before + 1 : before + 300])
        assert during[len(during) // 2] < 0.05 * NOISE, "the others serve as before"
        slowest = []
        with Puller(penstock.consumer, shop) as puller:
            for _ in range(10):
                began = time.monotonic()
                response = puller.pull("during", topic, max_messages=30)
                slowest.append(time.monotonic() - began)
                assert response.code == Code.OK
        shown = penstock.call("status").stdout.decode()
        assert "producer_proxy: group-2 open" in shown and "broker group group-2\nengine: TimeoutError" in shown
        assert sorted(slowest)[-2] < 0.1 * NOISE, "at most the first pull met it before it was isolated"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_all_closed(penstock)
    stream.wait_more(200)
    stream.end()
    assert {result.code for result in stream.results} == {Code.OK}
    found = drain(penstock, shop, topic)
    assert all(found[body] >= 1 for body in stream.bodies)


def test_one_engine_of_three_killed_under_load_loses_nothing_and_fails_no_unordered_send(penstock, shop, topic):
    streams = [Stream(penstock, shop, topic, durability=Durability.FSYNC) for _ in range(3)]
    for stream in streams:
        stream.wait_more(100)
    pid = penstock.kill("engine-2")
    for stream in streams:
        stream.wait_more(100)
    penstock.wait_replaced("engine-2", pid)
    wait_all_closed(penstock)
    for stream in streams:
        stream.wait_more(50)
        stream.end()
        assert Counter(result.code for result in stream.results) == {Code.OK: len(stream.results)}
    found = drain(penstock, shop, topic)
    assert all(found[body] >= 1 for stream in streams for body in stream.bodies)


def test_messages_are_looked_up_at_whichever_group_has_them(penstock, shop, topic):
    with Sender(penstock.producer, shop) as sender:
        sent = sender.send(*[Message(topic=topic, body=b"%d" % n, key=f"key-{n}", id=f"look-{n}") for n in range(40)])
    for number in (0, 17, 39):
        (by_key,) = penstock.run("message", "find", "--topic", topic, "--key", f"key-{number}")
        (by_id,) = penstock.run("message", "show", f"look-{number}", "--topic", topic)
        assert by_key == by_id and by_id["id"] == f"look-{number}"
        assert (by_id["queue"], by_id["offset"]) == (sent[number].queue, sent[number].offset)
        where = ("--queue", str(by_id["queue"]), "--offset", str(by_id["offset"]), "--limit", "1")
        assert penstock.run("message", "browse", "--topic", topic, *where) == [by_id]
    assert len(penstock.run("message", "find", "--topic", topic, "--from", "10m", "--limit", "100")) >= 40


def test_delayed_messages_of_all_groups_are_listed_cancelled_and_delivered(penstock, shop, topic):
    with Sender(penstock.producer, shop) as sender:
        late = [
            Message(topic=topic, body=b"late", key=f"key-{n}", id=f"late-{n}", delay_ms=3_600_000) for n in range(12)
        ]
        assert {result.code for result in sender.send(*late)} == {Code.OK}
        assert len(penstock.run("timer", "list", "--topic", topic)) == 12
        for number in range(12):
            penstock.run("timer", "cancel", "--topic", topic, f"late-{number}")
        assert penstock.run("timer", "list", "--topic", topic) == []
        drain(penstock, shop, topic)
        soon = [Message(topic=topic, body=b"soon-%d" % n, delay_ms=50) for n in range(24)]
        results = sender.send(*soon)
    assert {result.code for result in results} == {Code.OK}
    found = Counter()
    until(lambda: found.update(drain(penstock, shop, topic)) or len(found) == 24, "all are delivered")
    assert set(found.values()) == {1}


def test_dead_letters_of_all_groups_are_listed_pulled_and_sent_again(penstock, shop, topic):
    bodies = {b"%d" % number for number in range(120)}
    drain(penstock, shop, topic, "rejecting")
    with Sender(penstock.producer, shop) as sender:
        sender.send(*[Message(topic=topic, body=body, key=body.decode()) for body in bodies])
    rejected: set[bytes] = set()
    with Puller(penstock.consumer, shop) as puller:
        while rejected != bodies:
            deliveries = puller.pull("rejecting", topic, max_messages=100, wait_ms=200).deliveries
            rejected |= {each.message.body for each in deliveries}
            acks = [Ack(each.receipt, verdict=Verdict.REJECT, reason="no") for each in deliveries]
            puller.pull("rejecting", max_messages=0, acks=acks)

    def letters():
        return penstock.run("group", "dead-letters", "list", "rejecting", "--limit", "500")

    until(lambda: len(letters()) == len(bodies), "every rejected message is a dead letter")
    assert {letter["broker_group"] for letter in letters()} == {"group-1", "group-2", "group-3"}
    with Puller(penstock.consumer, shop) as puller:
        taken = puller.pull("rejecting", "_dlq.rejecting", max_messages=60, wait_ms=1000, invisible_ms=1000)
        assert taken.deliveries, "the group pulls its dead letters like any topic"
        done = puller.pull("rejecting", max_messages=0, acks=[Ack(each.receipt) for each in taken.deliveries])
        assert {result.code for result in done.ack_results} == {Code.OK}
    gone = {each.message.body for each in taken.deliveries}
    chosen = ("rejecting", "--since", "1h", "--cause", "rejected", "--dry-run")
    assert penstock.run("group", "dead-letters", "redrive", *chosen) == {"would_redrive": len(bodies - gone)}
    assert penstock.run("group", "dead-letters", "purge", *chosen) == {"would_purge": len(bodies - gone)}
    assert penstock.run("group", "dead-letters", "redrive", "rejecting") == {"redriven": len(bodies - gone)}
    assert set(drain(penstock, shop, topic, "rejecting")) == bodies - gone
    assert letters() == []


def test_a_client_s_own_id_is_known_again_whichever_group_has_it(penstock, shop):
    penstock.run("topic", "create", "once", "--queues", str(QUEUES), "--id-window-s", "60")
    with Sender(penstock.producer, shop) as sender:
        knows(sender, "once")
        for number in range(30):
            first, again = [sender.send(Message(topic="once", id=f"order-{number}"))[0] for _ in range(2)]
            assert (first.code, again.code) == (Code.OK, Code.DUPLICATE)
            assert (first.queue, first.offset) == (again.queue, again.offset)
