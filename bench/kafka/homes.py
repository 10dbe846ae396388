"""Topics whose home is Kafka: copies into the engine (`mirror`), sends (`home`) and pulls (`pull`).

mirror: how fast does the bridge copy a topic that is full, and how far behind is it at a steady rate? Records of 128
bytes, 8 partitions. The rate counts from the first copied record to the last. Lag is sampled every 20 ms at 5,000
records/s, as the age of the first record that is not copied.
home: calls of 500 messages with 64 keys against a direct producer of the bridge's library in batches of the same shape, and
calls of one message, with each installed library. CPU per message counts all of a process's work, the copy back into the
engine included.
pull: one group drains what was copied, by pulls of 1,000 over 4 connections.
Excluded: making the records, connecting, creating topics; for `home`, a round of each before the measured ones, in which the
broker's virtual machine compiles what it needs.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing

from bench import kafka_drivers
from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, run_load
from bench.kafka.desk import CLUSTER, PARTITIONS, KafkaDesk, kafka_desk, wait_for
from bench.measure import on_one_core, settle
from bench.settings import LoadSettings
from common.kafka.base import KafkaDriver, ProducerOptions
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords
from engine.client import copied
from engine.client.admin import AdminClient

RECORDS, SIZE, KEYS = 300_000, 128, 64
HOME = {"home": f"kafka:{CLUSTER}", "id_window_ms": 0}
LIVE_PER_S, LIVE_BATCH = 5_000, 50
SAMPLE_S = 0.02
COPY_S_MAX = 600.0
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
    return [figure for name in installed() for figure in _home(open_driver(name), scale, seconds, say)]


def _home(driver: KafkaDriver, scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    with kafka_desk(driver=driver.name) as desk:
        with closing(driver.admin(desk.connection)) as admin:
            kafka_drivers.create(admin, "direct")
        desk.create({"home": HOME})
        shapes = {500: 4, 1: 64}
        found, used, ratios = {}, {}, {}
        direct: list[float] = []
        for batch, connections in shapes.items():
            settings = LoadSettings(
                batch=batch, connections=connections, topics=1, topic_pattern="home", keys=KEYS, seconds=seconds,
                durability="default", size=SIZE, timeout_s=30.0,
            )  # fmt: skip
            with desk.instance.prepared(settings) as target:
                settle(settings, target)
                kafka_drivers.produce(driver, desk.connection, "direct", SIZE, int(RECORDS * scale), KEYS)
                run_load(settings, target)
                before = kafka_drivers.produce(driver, desk.connection, "direct", SIZE, int(RECORDS * scale), KEYS)
                cpu_s = {name: desk.cpu_s(name) for name in SENDING}
                with on_one_core():
                    counts = run_load(settings, target).counts
                used[batch] = {name: (desk.cpu_s(name) - cpu_s[name]) / counts["messages"] * 1e6 for name in SENDING}
                after = kafka_drivers.produce(driver, desk.connection, "direct", SIZE, int(RECORDS * scale), KEYS)
            direct += [before.records_per_s, after.records_per_s]
            found[batch] = counts["messages"] / counts["window_s"]
            ratios[batch] = 2 * found[batch] / (before.records_per_s + after.records_per_s)
            refused = {code: count for code, count in counts["codes"].items() if code not in STORED}
            say(
                f"home: {driver.name}, {batch} per call: {found[batch]:,.0f}/s, refused {refused}, direct {direct[-2:]}"
            )
    alone = sum(direct) / len(direct)
    costs = [
        Figure(f"{name} with {driver.name}, {batch} per call", cost, "µs of CPU per message")
        for batch, each in used.items()
        for name, cost in each.items()
    ]
    return [
        Figure(f"direct producer of {driver.name}, batches of {kafka_drivers.BATCH}", alone, "records/s"),
        Figure(f"send to a Kafka home by {driver.name}, 500 per call", found[500], "messages/s"),
        Figure(f"ratio to the direct runs of {driver.name} before and after it", ratios[500], "", least=0.8),
        Figure(f"send to a Kafka home by {driver.name}, 1 per call, 64 connections", found[1], "calls/s"),
        *costs,
    ]


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
