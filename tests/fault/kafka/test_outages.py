"""Dual write with a real engine and a real Kafka broker that goes down and up, as secondary and as primary; killed proxies.

PENSTOCK_OUTAGES=50 sets how often; the default is for the check.
"""

import itertools
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing

import pytest
from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyFramedTransportFactory

from common import contract
from common.clock import SystemClock
from common.config import open_store
from common.contract import Code, Credential, Message, SendRequest
from common.credential import mint
from common.kafka.base import NewKafkaTopic, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.records import Partition
from producer_proxy.journal.divergence import divergence
from tests.e2e.running import RunningPenstock
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PARTITIONS = 4
OUTAGES = int(os.environ.get("PENSTOCK_OUTAGES", "3"))
KILLS = 3
EVEN_S_MAX = 60.0
SERVES_S_MAX = 90.0
SHOWN_MAX = 2_000
SIDES = {
    "out": {"secondary": "kafka:main", "id_window_ms": 0},
    "in": {"home": "kafka:main", "secondary": "engine", "id_window_ms": 0},
}


class DualWritten:
    """A broker and a Penstock: `out` has its home in the engine, `in` in Kafka; the other side is the secondary.

    Args:
        kafka_data: where the broker keeps its messages; None: in `folder`.
    """

    def __init__(self, folder, kafka_data=None) -> None:
        self.brokers = KafkaBrokers(folder / "kafka", data=kafka_data).start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        with closing(open_driver().admin(self.connection)) as admin:
            assert admin.create_topics(dict.fromkeys(SIDES, NewKafkaTopic(PARTITIONS, 1))) == {}
            until(lambda: len(admin.topics([*SIDES])) == len(SIDES), "the topics", 60.0)
        self.penstock = RunningPenstock(folder / "data")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        with closing(open_store(f"file://{folder}/data/config")) as store:
            for name, fields in SIDES.items():
                store.put("topic", name, {"queues": PARTITIONS, "durability": "replicated", **fields}, 0)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"])
        self.journal = folder / "data" / "journal" / "producer_proxy"

    def engine_ids(self, topic) -> list[str]:
        """The ids of all messages, in the order of each queue."""
        found: list[str] = []
        for queue in range(PARTITIONS):
            offset = 0
            while page := self._page(topic, queue, offset):
                found += [each["id"] for each in page]
                offset = page[-1]["offset"] + 1
        return found

    def _page(self, topic, queue, offset):
        more = ("--queue", str(queue), "--offset", str(offset), "--limit", str(SHOWN_MAX))
        return self.penstock.run("message", "browse", "-t", topic, *more)

    def kafka_ids(self, topic) -> list[str]:
        """The ids of all records, in the order of each partition."""
        partitions = [Partition(topic, number) for number in range(PARTITIONS)]
        with closing(open_driver().admin(self.connection)) as admin:
            ends = admin.offsets(partitions, -1)
        found: list[str] = []
        with closing(open_driver().reader(self.connection, ReaderOptions(committed_only=False))) as reader:
            reader.assign(dict.fromkeys(partitions, 0))

            def is_read():
                for records in reader.poll(0.2):
                    found.extend(dict(headers)["penstock-id"].decode() for headers in records.headers)
                return all(reader.positions().get(each, 0) >= (ends[each] or 0) for each in partitions)

            until(is_read, f"the records of {topic}", EVEN_S_MAX)
        return found

    def wait_even(self) -> None:
        """Wait until the journal knows of no difference."""
        until(lambda: divergence(self.journal, underway_ms=0).is_empty, "the divergence to be empty", EVEN_S_MAX)

    def assert_equal(self, topic, load: "Load | None" = None) -> None:
        """Each id is on both sides, and on both equally often: a caller that sends again may have stored it twice.

        Args:
            load: whose codes are shown with an id that is not.
        """
        engine, kafka = Counter(self.engine_ids(topic)), Counter(self.kafka_ids(topic))
        differing = {
            name: (engine[name], kafka[name], [] if load is None else load.told[name])
            for name in engine | kafka
            if engine[name] != kafka[name]
        }
        assert not differing, "ids that engine and Kafka do not have equally often, and what their callers were told"

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


class Load:
    """Sends numbered messages of a few keys one by one, over a new connection where the old one breaks.

    As real callers do, it sends a message again under its id after an outcome that leaves open whether it is stored.
    What each was answered last is in `codes`; those that were sent more than once are in `again`; all answers, with the
    seconds of the load at which they came, are in `told`.

    Args:
        padding: bytes that each body has beside the message's name.
    """

    def __init__(self, both: DualWritten, topic: str, start: int = 0, padding: int = 0) -> None:
        self._padding = bytes(padding)
        self.codes: dict[str, int] = {}
        self.again: set[str] = set()
        self.told: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._began = time.monotonic()
        self._both, self._topic, self._start = both, topic, start
        self._link = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count(self._start):
            if self._stopping.wait(0.005):  # a pace, not a wait for anything
                break
            name, key = f"m{number}", f"k{number % 5}"
            self.codes[name] = self._send(name, key)
            while self.codes[name] == Code.TIMEOUT and not self._stopping.wait(0.1):
                self.again.add(name)
                self.codes[name] = self._send(name, key)

    def _send(self, name: str, key: str) -> int:
        code = self._sent(name, key)
        self.told[name].append((code, round(time.monotonic() - self._began, 2)))
        return code

    def _sent(self, name: str, key: str) -> int:
        try:
            self._link = self._link or self._client()
            credential = Credential(*mint(*self._both.application, SystemClock().now_ms()))
            message = Message(topic=self._topic, id=name, key=key, body=name.encode() + self._padding)
            request = SendRequest(credential=credential, messages=[message], timeout_ms=2_000)
            return self._link.send(request).results[0].code
        except Exception:  # the proxy was killed
            self._link = None
            return int(Code.TIMEOUT)

    def _client(self):
        return make_client(
            contract.Producer, *self._both.penstock.producer, proto_factory=TCyBinaryProtocolFactory(),
            trans_factory=TCyFramedTransportFactory(), timeout=10_000,
        )  # fmt: skip

    def count(self, code) -> int:
        return sum(each == code for each in list(self.codes.values()))

    def wait_for(self, code, count=1) -> None:
        before = self.count(code)
        until(lambda: self.count(code) >= before + count, f"{count} answers with code {code}", SERVES_S_MAX)

    def stop(self) -> dict[str, int]:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.codes


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    require(bool(installed()), "pip install penstock[kafka]")
    made = DualWritten(tmp_path_factory.mktemp("dual"))
    yield made
    made.close()


def stored_ok(codes):
    return {name for name, code in codes.items() if code in (Code.OK, Code.DUPLICATE)}


def test_kafka_down_and_up_leaves_both_sides_equal_and_callers_of_the_engine_see_nothing(both):
    out, into = Load(both, "out"), Load(both, "in")
    for _ in range(OUTAGES):
        out.wait_for(Code.OK, 20)
        into.wait_for(Code.OK, 20)
        both.brokers.kill(1)
        out.wait_for(Code.OK, 50)
        both.brokers.restart(1)
    into.wait_for(Code.OK, 20)
    assert set(out.stop().values()) == {Code.OK}, "the secondary is none of the callers' business"
    into.stop()
    both.wait_even()
    for topic, load in (("out", out), ("in", into)):
        assert stored_ok(load.codes) <= set(both.engine_ids(topic))
        both.assert_equal(topic, load)


def test_a_killed_proxy_leaves_nothing_unrepaired(both):
    load = Load(both, "out", start=1_000_000)
    for _ in range(KILLS):
        load.wait_for(Code.OK, 30)
        pid = both.penstock.kill("producer_proxy", signal.SIGKILL)
        both.penstock.wait_replaced("producer_proxy", pid)
    load.wait_for(Code.OK, 30)
    codes = load.stop()
    both.wait_even()
    both.assert_equal("out")
    assert stored_ok(codes) <= set(both.kafka_ids("out"))


def test_a_kafka_that_hangs_is_not_felt_and_gets_every_message_once_it_goes_on(both):
    load = Load(both, "out", start=2_000_000)
    load.wait_for(Code.OK, 20)
    both.brokers.freeze(1)
    try:
        load.wait_for(Code.OK, 100)
    finally:
        both.brokers.thaw(1)
    load.wait_for(Code.OK, 20)
    codes = load.stop()
    assert set(codes.values()) == {Code.OK}
    both.wait_even()
    both.assert_equal("out")
