"""One Kafka broker and one Penstock that knows it, for a case: topics on both sides, and the CPU of the processes."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bench.errors import InstanceError
from bench.instance import PENSTOCK, BenchInstance, up_in
from bench.pages import metrics_page
from bench.peers.kafka import one_broker
from common.config.opening import open_store
from common.kafka.base import ClusterAdmin, NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver

CLUSTER = "main"
PARTITIONS = 8
WAIT_S = 60.0
LOOK_S = 0.05
IDLE_S, IDLE_SHARE = 0.5, 0.05
COMMAND_S = 300.0
SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's posix-timers.h
LACKS_NOTHING = re.compile(r"^penstock_journal_diverging 0\.0$", re.MULTILINE)


class KafkaDesk:
    """
    Attributes:
        instance: the Penstock. bootstrap: the broker's address.
        pids: of the processes by name; `broker` is Kafka's.
    """

    def __init__(self, instance: BenchInstance, bootstrap: str, broker: int) -> None:
        self.instance, self.bootstrap, self._broker = instance, bootstrap, broker
        self.connection = KafkaConnection(CLUSTER, (bootstrap,), connect_timeout_s=WAIT_S)
        self.data = Path(instance.facts["data"])

    @property
    def pids(self) -> dict[str, int]:
        facts = json.loads((self.data / "up.json").read_text())["pids"]
        return {"broker": self._broker, **{name: pid for name, pid in facts.items() if isinstance(pid, int)}}

    def command(self, *words: str) -> Any:
        """Run a command of penstock; its JSON."""
        line = [*PENSTOCK, *words, "--data", str(self.data), "-o", "json"]
        done = subprocess.run(line, capture_output=True, timeout=COMMAND_S, check=False)
        if done.returncode:
            raise InstanceError(f"penstock {' '.join(words)}: {done.stderr.decode().strip()}")
        return json.loads(done.stdout)

    def watched_command(self, *words: str) -> list[tuple[float, str]]:
        """Run a command of penstock; the lines of its progress, each with its time in seconds."""
        line = [*PENSTOCK, *words, "--data", str(self.data), "-o", "json"]
        told: list[tuple[float, str]] = []
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for text in process.stderr:
                told.append((time.monotonic(), text.strip()))
        if process.returncode:
            raise InstanceError(f"penstock {' '.join(words)}: {told[-1][1] if told else 'failed'}")
        return told

    def create(self, topics: Mapping[str, Mapping[str, Any]], on_kafka: bool = True) -> None:
        """Create topics with these fields of their definitions, and those of the same names in Kafka; wait for both."""
        if on_kafka:
            with closing(open_driver().admin(self.connection)) as admin:
                create_on(admin, dict.fromkeys(topics, PARTITIONS))
        with closing(open_store(self.instance.facts["config"])) as store:
            for name, fields in topics.items():
                store.put("topic", name, {"queues": PARTITIONS, "durability": "memory", **fields}, 0)

    def give_way(self) -> None:
        """Let broker and bridge run only where the other processes leave time, as if they had a machine of their own.

        A niceness would not do: a thread that wakes up waits for the end of a nice one's time slice, milliseconds.
        """
        for name in ("broker", "kafka_bridge"):
            for task in Path(f"/proc/{self.pids[name]}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))

    @contextmanager
    def stopped_broker(self) -> Iterator[None]:
        """The broker hangs during the block."""
        os.kill(self._broker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._broker, signal.SIGCONT)

    def wait_repaired(self) -> None:
        """Wait until the producer proxy's journal lacks nothing at the secondary."""
        facts = self.instance.facts
        host, port = facts["producer_proxy"]["host"], facts["ops"]["producer_proxy"]
        wait_for(lambda: LACKS_NOTHING.search(metrics_page(host, port)) is not None, "the repair of what Kafka lacks")

    def cpu_s(self, name: str) -> float:
        """CPU time of a process so far, by the scheduler's clock: ticks of 10 ms are too coarse here.

        Its threads are in it, also those that have ended. The clock's number is that of clock_getcpuclockid(3).
        """
        return time.clock_gettime(~self.pids[name] << 3 | SCHEDULER_CLOCK)

    def settled_cpu_s(self, name: str) -> float:
        """CPU time of a process once it is idle: all copies are made."""
        before = self.cpu_s(name)
        while True:
            time.sleep(IDLE_S)
            now = self.cpu_s(name)
            if now - before <= IDLE_SHARE * IDLE_S:
                return now
            before = now


@contextmanager
def kafka_desk(*options: str, driver: str = "auto") -> Iterator[KafkaDesk]:
    """A fresh broker and a fresh Penstock, whose bridge has this driver; both are gone afterwards."""
    with one_broker() as broker, up_in(broker.folder, *options) as instance:
        desk = KafkaDesk(instance, broker.address, broker.pid)
        desk.command("kafka", "add", CLUSTER, "--bootstrap", desk.bootstrap, "--driver", driver)
        wait_for(lambda: "kafka_bridge" in desk.pids, "the Kafka bridge")
        yield desk


def create_on(admin: ClusterAdmin, partitions: Mapping[str, int]) -> None:
    """Create topics in Kafka; return when the broker serves them."""
    refusals = admin.create_topics({name: NewKafkaTopic(count, 1) for name, count in partitions.items()})
    if refusals:
        raise next(iter(refusals.values()))
    wait_for(lambda: len(admin.topics(list(partitions))) == len(partitions), "the topics in Kafka")


def wait_for(condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Raises InstanceError."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise InstanceError(f"waited {within_s:g} s in vain for {what}")
        time.sleep(LOOK_S)
