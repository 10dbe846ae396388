"""Delayed messages with real processes: the tables of delays, cancellations and loops, through kills and a clock that steps."""

import itertools
import re
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec

import pytest

from common.contract import Ack, Code, Message, Operation, Position
from tests.e2e.pull_parts import Process
from tests.e2e.request_parts import RequestSite
from tests.fault.stock_clients import Puller, Sender, knows, now_ms, retry_until_served
from tests.services import require
from tests.services.stepped_clock import SteppedClock
from tests.waiting import until

TOPIC, QUEUES = "later", 4
LATE_S_MAX = 5.0  # a shared test machine; the bars are measured by bench.timers
HOUR_MS = 3_600_000


class Shop:
    """A running Penstock, one application, and what arrives at its one consumer."""

    def __init__(self, penstock):
        self.penstock = penstock
        self.who = penstock.application("shop", send=["*"], pull=["*"])
        penstock.run("topic", "create", TOPIC, "--queues", str(QUEUES))

    def connect(self):
        self.sender, self.puller = Sender(self.penstock.producer, self.who), Puller(self.penstock.consumer, self.who)

    def close(self):
        self.sender.close()
        self.puller.close()

    def stored(self):
        """id → [stored at], of everything that is in the topic's queues."""
        found = {}
        for delivery in self.puller.read_all("reader", TOPIC, QUEUES):
            found.setdefault(delivery.id, []).append(delivery.stored_at_ms)
        return {name: sorted(times) for name, times in found.items()}

    def wait_stored(self, counts, what):
        """Until each of these ids is there as often as it should be; returns `stored()`."""

        def complete():
            found = self.stored()
            return found if all(len(found.get(name, ())) >= count for name, count in counts.items()) else None

        return retry_until_served(complete, what, 30)

    def cancel(self, name):
        (result,) = self.sender.send(Message(topic=TOPIC, id=name, operation=Operation.CANCEL))
        return result


@pytest.fixture(scope="module")
def one_shop(penstock_up):
    return Shop(penstock_up)


@pytest.fixture
def shop(one_shop):
    """With connections of the test's own: proxies close those that were idle for long."""
    one_shop.connect()
    knows(one_shop.sender, TOPIC)
    yield one_shop
    one_shop.close()


@pytest.fixture
def name(request):
    """A prefix for the ids of one test."""
    return request.node.name[:40]


def loop(**values):
    return {"penstock-loop-" + key.replace("_", "-"): str(value) for key, value in values.items()}


def test_the_table_of_delays_never_early_and_each_once(shop, name):
    start = now_ms()
    asked = {
        "now": {"delay_ms": 0}, "1ms": {"delay_ms": 1}, "40ms": {"delay_ms": 40}, "300ms": {"delay_ms": 300}, "1200ms": {"delay_ms": 1200},
        "past": {"deliver_at_ms": start - HOUR_MS}, "epoch": {"deliver_at_ms": 0}, "soon": {"deliver_at_ms": start + 500},
    }  # fmt: skip
    messages = [Message(topic=TOPIC, id=f"{name}-{what}", body=what.encode(), **when) for what, when in asked.items()]
    results = shop.sender.send(*messages)
    assert [(result.code, result.offset) for result in results] == [(Code.OK, None)] * len(asked)
    arrived = {}

    def pull():
        for delivery in shop.puller.pull(name, TOPIC, wait_ms=200, max_messages=100).deliveries:
            if delivery.id.startswith(name):
                assert delivery.id not in arrived
                arrived[delivery.id] = (now_ms(), delivery)
        return len(arrived) == len(asked)

    until(pull, "all have come")
    for message, when in zip(messages, asked.values(), strict=True):
        due_ms = max(start, when.get("deliver_at_ms", start + when.get("delay_ms", 0)))
        at_ms, delivery = arrived[message.id]
        assert due_ms <= at_ms <= due_ms + LATE_S_MAX * 1000, message.id
        assert due_ms <= delivery.stored_at_ms, message.id
        assert delivery.message.body == message.body


def test_any_bytes_come_as_they_were_sent_to_the_queue_of_their_key(shop, name):
    body = bytes(range(256)) * 200
    plain, delayed = (
        shop.sender.one(TOPIC, body, id=f"{name}{index}", key="customer 7", **when)
        for index, when in enumerate(({}, {"delay_ms": 50}))
    )
    shop.wait_stored({delayed.id: 1}, "it has come")
    found = [each for each in shop.puller.read_all("reader", TOPIC, QUEUES) if each.id in (plain.id, delayed.id)]
    assert [(each.queue, each.message.body) for each in found] == [(plain.queue, body)] * 2


def test_the_table_of_cancellations(shop, name):
    messages = [Message(topic=TOPIC, id=f"{name}{i}", delay_ms=900 + i) for i in range(20)]
    assert {result.code for result in shop.sender.send(*messages)} == {Code.OK}
    assigned = shop.sender.one(TOPIC, delay_ms=900).id
    for gone in [*(f"{name}{i}" for i in range(0, 20, 2)), assigned]:
        assert shop.cancel(gone).code == Code.OK
        again = shop.cancel(gone)
        assert (again.code, again.error) == (
            Code.NOT_CANCELLABLE, "Message.id: no such delayed message, or already delivered",
        )  # fmt: skip
    stored = shop.wait_stored({f"{name}{i}": 1 for i in range(1, 20, 2)}, "those that were not cancelled")
    assert Counter(each for each in stored if each.startswith(name)) == {f"{name}{i}": 1 for i in range(1, 20, 2)}
    assert assigned not in stored
    assert shop.cancel(f"{name}1").code == Code.NOT_CANCELLABLE, "delivered"
    assert shop.cancel("nobody").code == Code.NOT_CANCELLABLE, "unknown"


def test_a_call_is_done_in_its_order_so_a_message_can_be_put_off(shop, name):
    def send(delay_ms):
        return Message(topic=TOPIC, id=name, body=b"%d" % delay_ms, delay_ms=delay_ms)

    withdraw = Message(topic=TOPIC, id=name, operation=Operation.CANCEL)
    codes = [result.code for result in shop.sender.send(send(60_000), withdraw, send(300), send(1), withdraw, send(50))]
    assert codes == [Code.OK, Code.OK, Code.OK, Code.DUPLICATE, Code.OK, Code.OK]
    shop.wait_stored({name: 1}, "the last one")
    bodies = [each.message.body for each in shop.puller.read_all("reader", TOPIC, QUEUES) if each.id == name]
    assert bodies == [b"50"]


@pytest.mark.parametrize(
    ("properties", "gaps_ms"),
    [
        (loop(times=4, interval_ms=150), [150, 150, 150]),
        (loop(times=4, interval_ms=100, growth=2), [100, 200, 400]),
        (loop(times=1, interval_ms=100), []),
    ],
)
def test_the_table_of_loops(shop, name, properties, gaps_ms):
    start = now_ms()
    assert shop.sender.one(TOPIC, id=name, deliver_at_ms=start + 200, properties=properties).code == Code.OK
    (times,) = (shop.wait_stored({name: 1 + len(gaps_ms)}, "all rounds")[each] for each in [name])
    dues = list(itertools.accumulate([start + 200, *gaps_ms]))
    assert all(due <= at <= due + LATE_S_MAX * 1000 for due, at in zip(dues, times, strict=True))


def test_a_cancelled_loop_has_no_further_round(shop, name):
    shop.sender.one(TOPIC, id=name, delay_ms=1, properties=loop(times=1000, interval_ms=100))
    shop.wait_stored({name: 2}, "two rounds")
    assert shop.cancel(name).code == Code.OK
    seen = len(shop.stored()[name])
    shop.sender.one(TOPIC, id=name + "-behind", delay_ms=400)
    assert len(shop.wait_stored({name + "-behind": 1}, "what is due later")[name]) == seen


def test_an_id_is_a_duplicate_before_and_behind_its_moment(shop, name):
    sent = [shop.sender.one(TOPIC, id=name, delay_ms=200).code for _ in range(2)]
    assert sent == [Code.OK, Code.DUPLICATE]
    shop.wait_stored({name: 1}, "it has come")
    (first,) = [each for each in shop.puller.read_all("reader", TOPIC, QUEUES) if each.id == name]
    for again in (shop.sender.one(TOPIC, id=name), shop.sender.one(TOPIC, id=name, delay_ms=100)):
        assert (again.code, again.queue, again.offset) == (Code.DUPLICATE, first.queue, first.offset)


def test_a_plain_send_of_the_id_meanwhile_is_the_one_that_counts(shop, name):
    assert shop.sender.one(TOPIC, b"later", id=name, delay_ms=300).code == Code.OK
    assert shop.sender.one(TOPIC, b"now", id=name).code == Code.OK
    shop.sender.one(TOPIC, id=name + "-behind", delay_ms=600)
    shop.wait_stored({name + "-behind": 1}, "what is due later")
    found = [each.message.body for each in shop.puller.read_all("reader", TOPIC, QUEUES) if each.id == name]
    assert found == [b"now"]


def test_operators_list_and_cancel_what_is_pending(shop, name):
    run = shop.penstock.run
    for number in range(3):
        shop.sender.one(TOPIC, id=f"{name}{number}", delay_ms=HOUR_MS + number)
    rows = [row for row in run("timer", "list", "--topic", TOPIC) if row["id"].startswith(name)]
    assert [row["id"] for row in rows] == [f"{name}{number}" for number in range(3)]
    assert all(row["rounds"] == 1 and row["due_ms"] > now_ms() for row in rows)
    assert run("timer", "cancel", "--topic", TOPIC, f"{name}1")["cancelled"] == f"{name}1"
    left = [row["id"] for row in run("timer", "list", "--topic", TOPIC) if row["id"].startswith(name)]
    assert left == [f"{name}0", f"{name}2"]
    refused = shop.penstock.call("timer", "cancel", "--topic", TOPIC, f"{name}1")
    assert refused.returncode == 3 and refused.stderr.count(b"\n") == 1


def test_kills_of_the_engine_lose_double_and_hasten_nothing(shop, name):
    start, counts, dues = now_ms(), {}, {}
    messages = []
    for number in range(240):
        dues[f"{name}{number}"], counts[f"{name}{number}"] = start + 300 + number * 15, 1
        messages.append(Message(topic=TOPIC, id=f"{name}{number}", deliver_at_ms=dues[f"{name}{number}"]))
    for number in range(10):
        dues[f"{name}-loop{number}"], counts[f"{name}-loop{number}"] = start + 400, 8
        fields = {"deliver_at_ms": start + 400, "properties": loop(times=8, interval_ms=300)}
        messages.append(Message(topic=TOPIC, id=f"{name}-loop{number}", **fields))
    assert {result.code for result in shop.sender.send(*messages)} == {Code.OK}
    for number in range(235, 240):
        assert shop.cancel(f"{name}{number}").code == Code.OK
        del counts[f"{name}{number}"]
    for after_ms in (600, 1500, 2400):
        until(lambda after_ms=after_ms: now_ms() > start + after_ms, "the next kill")
        shop.penstock.wait_replaced("engine", shop.penstock.kill("engine"))
    shop.close()
    shop.connect()
    look = {"positions": [Position(TOPIC, queue) for queue in range(QUEUES)]}
    retry_until_served(lambda: shop.puller.pull("reader", **look).code == Code.OK, "the consumer proxy serves")
    stored = shop.wait_stored(counts, "every message and every round")
    found = {each: len(times) for each, times in stored.items() if each.startswith(name)}
    assert found == counts
    for each, times in stored.items():
        if each.startswith(name):
            assert all(at >= dues[each] + 300 * round_ for round_, at in enumerate(times)), each


class SteppedSite(RequestSite):
    """Its engine has a wall clock of its own."""

    def __init__(self, folder):
        self.clock = SteppedClock(folder)
        super().__init__(folder)

    def start_engine(self):
        port = self.engine.port if self.engine else 0
        options = ["--data", self.folder / "engine", "--listen", f"127.0.0.1:{port}", "--ops", "127.0.0.1:0"]
        options += ["--config", self.config, "--cluster-key", self.key]
        self.engine = Process("engine", *options, env=self.clock.environment)


@pytest.mark.parametrize("first_h", [1, -1])
def test_a_clock_that_steps_an_hour_loses_doubles_and_hastens_nothing(tmp_path, first_h):
    site = SteppedSite(tmp_path)
    try:
        sender, start = site.sender(site.ask), now_ms()
        puller = site.client(site.consumer)
        dues = {"half an hour": 30 * 60_000, "ninety minutes": 90 * 60_000, "soon": 300, "a day": 24 * HOUR_MS}
        messages = [Message(topic="orders", id=each, deliver_at_ms=start + due) for each, due in dues.items()]
        assert {result.code for result in sender.send(*messages)} == {Code.OK}
        seen = Counter()

        def comes(name):
            def pull():
                deliveries = puller.pull(group="billing", topics=["orders"], wait_ms=100).deliveries
                seen.update(each.id for each in deliveries)
                return name in seen

            until(pull, f"{name!r} has come", 20)

        def fence(name):
            """What is sent without a delay comes; so would what is due."""
            retry_until_served(lambda: sender.send(Message(topic="orders", id=name))[0].code < 100, "it is stored")
            comes(name)

        if first_h < 0:
            site.clock.step(-HOUR_MS)
            until(lambda: now_ms() > start + 600, "a moment behind the first due time")
            fence("behind")
            assert set(seen) == {"behind"}, "nothing else is due by that clock"
            site.engine.kill()
            site.start_engine()
            fence("restarted")
            assert set(seen) == {"behind", "restarted"}
            site.clock.step(0)
        comes("soon")
        site.clock.step(HOUR_MS)
        comes("half an hour")
        fence("ahead")
        assert "ninety minutes" not in seen
        site.clock.step(0)
        sender.send(Message(topic="orders", id="back", delay_ms=200))
        comes("back")
        site.clock.step(2 * HOUR_MS)
        comes("ninety minutes")
        fence("last")
        assert "a day" not in seen
        assert {name for name, count in seen.items() if count > 1} <= {"behind"}, "the kill may repeat a delivery"
    finally:
        site.close()


def test_filters_and_the_order_of_keys_hold_for_delayed_messages(shop, name):
    group = "ordered"
    shop.penstock.run("group", "create", group, "--order", "key", "--filter", "wanted == 'yes'")
    start = now_ms() + 500
    for number in range(12):
        wanted = {"wanted": "yes" if number % 3 else "no"}
        shop.sender.one(
            TOPIC, id=f"{name}{number:02}", key=f"k{number % 2}", deliver_at_ms=start + number * 20, properties=wanted
        )
    taken, acks = [], []

    def pull():
        response = shop.puller.pull(group, TOPIC, wait_ms=200, max_messages=1, acks=acks)
        acks[:] = [Ack(delivery.receipt) for delivery in response.deliveries]
        taken.extend((delivery.message.key, delivery.id) for delivery in response.deliveries)
        return len(taken) == 8

    until(pull, "all that the filter wants")
    wanted = [(f"k{number % 2}", f"{name}{number:02}") for number in range(12) if number % 3]
    for key in ("k0", "k1"):
        assert [each for each in taken if each[0] == key] == [each for each in wanted if each[0] == key]


def test_rate_limits_count_a_delayed_message_when_it_is_sent(shop, name):
    shop.penstock.run("topic", "create", "rare", "--rate-messages", "5")
    retry_until_served(lambda: shop.sender.one("rare", delay_ms=HOUR_MS).code != Code.UNKNOWN_TOPIC, "it is known")
    results = shop.sender.send(*(Message(topic="rare", id=f"{name}{i}", delay_ms=HOUR_MS) for i in range(100)))
    codes = Counter(result.code for result in results)
    assert codes[Code.OK] + codes[Code.RATE_LIMITED] == 100 and codes[Code.RATE_LIMITED] > 80
    kept = {row["id"] for row in shop.penstock.run("timer", "list", "--topic", "rare")}
    assert {result.id for result in results if result.code == Code.OK} <= kept
    assert not kept & {result.id for result in results if result.code == Code.RATE_LIMITED}


def test_no_buffer_takes_a_delayed_message_while_the_engine_is_away(penstock_factory):
    penstock = penstock_factory()
    who = penstock.application("shop", send=["*"], pull=["*"])
    penstock.run("topic", "create", "kept", "--buffer", "disk")
    with Sender(penstock.producer, who) as sender:
        knows(sender, "kept")
        penstock.kill("engine", signal.SIGSTOP)
        try:
            plain, delayed = sender.send(
                Message(topic="kept", id="plain"), Message(topic="kept", id="delayed", delay_ms=1), timeout_ms=1000
            )
        finally:
            penstock.kill("engine", signal.SIGCONT)
        assert plain.code == Code.BUFFERED
        assert delayed.code in (Code.TIMEOUT, Code.UNAVAILABLE)


def test_the_benchmark_in_a_small_form_loses_and_hastens_nothing():
    require(find_spec("bench._histogram"), "the native modules")
    line = [sys.executable, "-m", "bench.timers", "--count", "20000", "--rate", "2000", "--seconds", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    pending, firing = (dict(re.findall(r"(\w+)=([\d.,]+)", row)) for row in done.stdout.splitlines())
    assert pending["pending_after_restart"] == "21,000"
    assert firing["early"] == "0"
