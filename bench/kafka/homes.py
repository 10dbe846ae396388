"""Topics whose home is Kafka: copies into the engine (`mirror`), sends (`home`) and pulls (`pull`).

mirror: how fast does the bridge copy a topic that is full, and how far behind is it at a steady rate? Records of 128
bytes, 8 partitions. The rate counts from the first copied record to the last. Lag is sampled every 20 ms at 5,000
records/s, as the age of the first record that is not copied.
home: calls of 500 messages with 64 keys against a direct producer in batches of the same shape, with as many records in
flight, in turns; and calls of one message. With what a bridge takes by default, and with kafka-python alone. The direct
producer is the library's own, of confluent-kafka or of kafka-python. CPU per message counts all of a process's work, the copy
back into the engine included.
pull: one group drains what was copied, by pulls of 1,000 over 4 connections.
Excluded: making the records, connecting, creating topics; for `home`, rounds of both before the measured ones, in which the
broker's virtual machine compiles what it needs.
"""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from bench import kafka_drivers
from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, LoadTarget, run_load
from bench.kafka.desk import CLUSTER, PARTITIONS, KafkaDesk, kafka_desk, wait_for
from bench.measure import on_one_core, settle
from bench.settings import LoadSettings
from common.kafka.base import END, KafkaDriver, ProducerOptions
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords, Partition
from engine.client import copied
from engine.client.admin import AdminClient

RECORDS, SIZE, KEYS = 300_000, 128, 64
HOME = {"home": f"kafka:{CLUSTER}", "id_window_ms": 0}
LIVE_PER_S, LIVE_BATCH = 5_000, 50
SAMPLE_S = 0.02
COPY_S_MAX = 600.0
ROUNDS, WARM_ROUNDS = 4, 4
BRIDGE = "kafka_bridge"
SENDING = ("producer_proxy", BRIDGE, "broker", "engine")


def run_mirror(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    with kafka_desk() as desk, closing(_engine(desk)) as link:
        figures = _copied(desk, link, int(RECORDS * scale), say)
        return figures + _lag(desk, link, seconds, say)


def run_pull(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    count = int(RECORDS * scale)
    with kafka_desk() as desk, closing(_engine(desk)) as link:
        _copied(desk, link, count, say)
        settings = LoadSettings(
            mode="pull", topics=1, topic_pattern="mirror", consumers=4, seconds=COPY_S_MAX, warmup_s=0.0, size=SIZE
        )
        with desk.instance.prepared(settings) as target, on_one_core():
            counts = run_load(settings, target, deliveries_max=count).counts
    return [
        Figure("pull from a Kafka home", counts["deliveries"] / counts["window_s"], "messages/s", least=100_000),
        Figure("delivered", counts["deliveries"] / count, "of the records", least=1.0),
    ]


def run_home(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    names = installed()
    chosen = ["auto", *names[1:]] if len(names) > 1 else names  # auto: both together
    return [figure for name in chosen for figure in _home(name, scale, seconds, say)]


@dataclass
class _Sends:
    """Sums over the measured rounds of one number of messages per call."""

    settings: LoadSettings
    target: LoadTarget
    per_s: list[float] = field(default_factory=list)
    used_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SENDING, 0.0))
    messages: int = 0
    sent_s: float = 0.0
    copied_s: float = 0.0

    def run(self, desk: KafkaDesk, link: AdminClient) -> None:
        before, began = {name: desk.cpu_s(name) for name in SENDING}, time.monotonic()
        with on_one_core():
            counts = run_load(self.settings, self.target).counts
        self.sent_s += time.monotonic() - began
        wait_until_copied(desk, link)
        self.copied_s += time.monotonic() - began
        if refused := {code: count for code, count in counts["codes"].items() if code not in STORED}:
            raise RunError(f"home: {self.settings.batch} per call: {refused} (code: messages)")
        for name in SENDING:
            self.used_s[name] += desk.cpu_s(name) - before[name]
        self.messages += counts["messages"]
        self.per_s.append(counts["messages"] / counts["window_s"])

    def costs(self, name: str) -> list[Figure]:
        return [
            Figure(f"{name}: {process}", used_s / self.messages * 1e6, "µs of CPU per message")
            for process, used_s in self.used_s.items()
        ]


def _home(name: str, scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    """Args: name: of the driver; auto: the default."""
    driver = open_driver("" if name == "auto" else name)
    direct: list[float] = []
    with kafka_desk(driver=name) as desk, ExitStack() as stack:
        link = stack.enter_context(closing(_engine(desk)))
        with closing(driver.admin(desk.connection)) as admin:
            kafka_drivers.create(admin, "direct")
        desk.create({"home": HOME})

        def form(batch: int, connections: int) -> _Sends:
            settings = LoadSettings(
                batch=batch, connections=connections, topics=1, topic_pattern="home", keys=KEYS, durability="default",
                seconds=seconds / ROUNDS, size=SIZE, timeout_s=30.0,
            )  # fmt: skip
            target = stack.enter_context(desk.instance.prepared(settings))
            settle(settings, target)
            return _Sends(settings, target)

        def produce() -> float:
            count = int(RECORDS * scale)
            alone = kafka_drivers.plain_producer(driver)
            return kafka_drivers.produce(alone, desk.connection, "direct", SIZE, count, KEYS).records_per_s

        batches, single = form(kafka_drivers.BATCH, kafka_drivers.BATCHES_WAITING), form(1, 64)
        for _ in range(WARM_ROUNDS):
            produce()
            run_load(batches.settings, batches.target)
            wait_until_copied(desk, link)
        for number in range(ROUNDS):
            direct.append(produce())
            batches.run(desk, link)
            single.run(desk, link)
            say(f"home: {name}, round {number + 1}: direct {direct[-1]:,.0f}, {batches.per_s[-1]:,.0f}/s")
    alone, sent = statistics.median(direct), statistics.median(batches.per_s)
    shape = f"{kafka_drivers.BATCH} per call, {batches.settings.connections} connections"
    return [
        Figure(f"{name}: direct producer, as many records in flight", alone, "records/s"),
        Figure(f"{name}: send to a Kafka home, {shape}", sent, "messages/s"),
        Figure(f"{name}: ratio to the direct producer", sent / alone, "", least=0.8),
        Figure(f"{name}: the same until all is copied back", sent / alone * batches.sent_s / batches.copied_s, ""),
        Figure(f"{name}: send to a Kafka home, 1 per call, 64 connections", statistics.median(single.per_s), "calls/s"),
        *batches.costs(f"{name}, {kafka_drivers.BATCH} per call"),
        *single.costs(f"{name}, 1 per call"),
    ]


def wait_until_copied(desk: KafkaDesk, link: AdminClient) -> None:
    """Return when the engine has all records of the topic home."""
    with closing(open_driver().admin(desk.connection)) as admin:
        partitions = [Partition("home", number) for number in range(PARTITIONS)]
        count = sum(filter(None, admin.offsets(partitions, END).values()))
    wait_for(lambda: sum(_next(link, "home")) >= count, "the copy", COPY_S_MAX)


def _engine(desk: KafkaDesk) -> AdminClient:
    place = desk.instance.facts["engine"]
    return AdminClient((place["host"], place["port"]), (desk.data / "admin.key").read_bytes())


def _next(link: AdminClient, topic: str) -> list[int]:
    """The source offset up to which each queue is copied."""
    try:
        return [each.next for each in copied.states(link, [(topic, queue) for queue in range(PARTITIONS)])]
    except copied.AdminError:  # no queue yet
        return [0] * PARTITIONS


def _copied(desk: KafkaDesk, link: AdminClient, count: int, say: Callable[[str], None]) -> list[Figure]:
    driver = open_driver()
    with closing(driver.admin(desk.connection)) as admin:
        kafka_drivers.create(admin, "mirror")
    say(f"mirror: {count:,} records to Kafka")
    kafka_drivers.produce(driver, desk.connection, "mirror", SIZE, count)
    before_s = desk.cpu_s(BRIDGE)
    desk.create({"mirror": HOME}, on_kafka=False)
    wait_for(lambda: sum(_next(link, "mirror")) > 0, "the first copied record")
    began, first = time.monotonic(), sum(_next(link, "mirror"))
    wait_for(lambda: sum(_next(link, "mirror")) >= count, "the copy", COPY_S_MAX)
    took_s = time.monotonic() - began
    used_us = (desk.cpu_s(BRIDGE) - before_s) / count * 1e6
    return [
        Figure("mirror, Kafka to the engine", (count - first) / took_s, "messages/s", least=100_000),
        Figure("bridge", used_us, "µs of CPU per message"),
    ]


class LiveRecords:
    """Sends records at a steady rate to every partition in turn.

    Attributes:
        sent_at: per partition, when each record was given to the client, in monotonic seconds.
    """

    def __init__(self, desk: KafkaDesk, driver: KafkaDriver, topic: str) -> None:
        self.sent_at: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._topic, self._stopping = topic, threading.Event()
        self._producer = driver.producer(desk.connection, ProducerOptions())
        self._producer.partitions(topic)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(30.0)
        self._producer.close(5.0)

    def _run(self) -> None:
        due, turn = time.monotonic(), 0
        none: list[None] = [None] * LIVE_BATCH
        bodies: list[bytes | None] = [b"x" * SIZE] * LIVE_BATCH
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            partition = turn % PARTITIONS
            self.sent_at[partition] += [time.monotonic()] * LIVE_BATCH
            records = OutgoingRecords(
                [self._topic] * LIVE_BATCH, [partition] * LIVE_BATCH, [-1] * LIVE_BATCH, none, bodies, [()] * LIVE_BATCH
            )
            self._producer.produce(records, lambda results: None)
            due, turn = due + LIVE_BATCH / LIVE_PER_S, turn + 1


def _lag(desk: KafkaDesk, link: AdminClient, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    say(f"mirror: lag at {LIVE_PER_S:,} records/s")
    driver = open_driver()
    with closing(driver.admin(desk.connection)) as admin:
        kafka_drivers.create(admin, "live")
    desk.create({"live": HOME}, on_kafka=False)
    live, lags_s = LiveRecords(desk, driver, "live"), []
    try:
        wait_for(lambda: min(_next(link, "live")) > 0, "the first copied records")
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            for partition, position in enumerate(_next(link, "live")):
                now, sent_at = time.monotonic(), live.sent_at[partition]
                lags_s.append(now - sent_at[position] if position < len(sent_at) else 0.0)
            time.sleep(SAMPLE_S)
    finally:
        live.stop()
    if not lags_s:
        raise RunError("mirror: no sample of the lag")
    lags_s.sort()
    return [
        Figure("lag of the mirror, p50", lags_s[len(lags_s) // 2], "s"),
        Figure("lag of the mirror, p99", lags_s[int(0.99 * len(lags_s))], "s", most=1.0),
    ]
