"""Plans that go to and fro under load while processes are killed: the parts that the tests of kills share."""

import itertools
import signal
import subprocess
import threading
import time
from contextlib import closing

from thriftpy2.thrift import TException

from common.contract import Code
from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from migration.recipes.registry import courses_of
from tests.e2e.kafka.home import Puller
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.fault.kafka.test_outages import PARTITIONS, DualWritten
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

GROUP = "workers"
TOPICS = {"double_write": "written", "mirror": "mirrored", "double_read": "read"}
"""By recipe: its topic, which is the name of its plan, too."""
PLAN = """\
name: {topic}
recipe: {recipe}
cluster: main
topics: [{topic}]
gates: {{error_rate: 1}}
limits: {{fence_s: 60, soak_hours: 0}}
"""
VICTIMS = ("operator", "producer_proxy", "consumer_proxy", "kafka_bridge", "engine", "kafka")
DONE_S_MAX = 300.0
SUB_STEP_S_MAX = 60.0


class Moving(DualWritten):
    """A broker and a Penstock, with a started plan per recipe."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        with closing(open_driver().admin(self.connection)) as admin:
            assert admin.create_topics(dict.fromkeys(TOPICS.values(), NewKafkaTopic(PARTITIONS, 1))) == {}
            until(lambda: len(admin.topics([*TOPICS.values()])) == len(TOPICS), "the topics", 60.0)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])
        self.journal = folder / "data" / "journal" / "producer_proxy"
        self.penstock.run("group", "create", GROUP, "--order", "key")
        for recipe, topic in TOPICS.items():
            plan = PLAN.format(recipe=recipe, topic=topic)
            (folder / f"{topic}.yaml").write_text(plan + f"groups: [{GROUP}]\n" * (recipe == "double_read"))
            self.penstock.run("migrate", "plan", str(folder / f"{topic}.yaml"), "--accept", "lone-replica")
            self.penstock.run("migrate", "start", topic)

    def kill_during(self, recipe, command, sub_step, victim) -> None:
        """Begin a command, and kill the victim in that sub-step, or when the command has ended before."""
        line = [*PENSTOCK, "migrate", command, TOPICS[recipe], "--data", str(self.penstock.data)]
        process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        told: list[str] = []
        reading = threading.Thread(target=lambda: told.extend(process.stderr), daemon=True)
        reading.start()
        wanted = f"{command}: {sub_step}"
        until(
            lambda: process.poll() is not None or any(wanted in each for each in [*told]), wanted, SUB_STEP_S_MAX
        )  # fmt: skip
        try:
            self._kill(process, victim)
            process.wait(SUB_STEP_S_MAX)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
            reading.join(10)

    def _kill(self, process, victim) -> None:
        if victim == "operator":
            process.kill()
        elif victim == "kafka":
            self.brokers.kill(1)
            self.brokers.restart(1)
        else:
            pid = self.penstock.kill(victim, signal.SIGKILL)
            self.penstock.wait_replaced(victim, pid)

    def finish(self, recipe, command) -> None:
        """Resume the command, or begin it again where it was given up, until it has ended well."""
        plan, end, told = TOPICS[recipe], time.monotonic() + DONE_S_MAX, b""
        while True:
            row = next(each for each in self.penstock.run("migrate", "status") if each["plan"] == plan)
            if not row["course"] and row["step"] == courses_of(recipe)[command].to:
                return
            assert time.monotonic() < end, f"{command} does not end: {row}: {told.decode()}"
            try:
                told = self.penstock.call("migrate", "resume" if row["course"] else command, plan).stderr
            except subprocess.TimeoutExpired as late:  # it waits for what is being repaired: that is a kill more
                told = late.stderr or b""

    def go(self, recipe, way, kills, chance, load) -> None:
        """Go that way to and fro with a kill in each command. `chance`: chooses the victim and the sub-step."""
        for command in itertools.islice(itertools.cycle(way), kills):
            sub_step, victim = chance.choice(courses_of(recipe)[command].sub_steps), chance.choice(VICTIMS)
            print(f"{recipe}: {victim} is killed in {command}: {sub_step}", flush=True)
            self.kill_during(recipe, command, sub_step, victim)
            self.finish(recipe, command)
            load.wait_for(Code.OK, 20)


class Member:
    """A consumer of the proxy in a thread that outlives kills: names of the messages it got, in order, with repeats."""

    def __init__(self, moving, topic, group=GROUP) -> None:
        self.found: list[str] = []
        self._moving, self._topic, self._group, self._stopping = moving, topic, group, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(Puller(self._moving, self._group)) as puller:
                    while not self._stopping.is_set():
                        self.found += [each.message.body.decode() for each in puller.pull(self._topic, wait_ms=200)]
            except (OSError, EOFError, TException, AssertionError):  # the proxy was killed, or answers that it waits
                self._stopping.wait(0.1)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
