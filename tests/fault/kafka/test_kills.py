"""Kills while a plan with the recipe double_write moves a topic: operator's command, proxy, bridge, engine, Kafka.

Which process is killed, and in which sub-step, is chosen by a seed. PENSTOCK_KILLS=100 sets how many, PENSTOCK_KILLS_SEED
which; the defaults are for the check.
"""

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import closing

import pytest

from common.contract import Code
from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from migration.recipes.double_write import COURSES
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.fault.kafka.test_outages import PARTITIONS, DualWritten, Load, stored_ok
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "1"))
TOPIC = "moved"
PLAN = f"""\
name: kills
recipe: double_write
cluster: main
topics: [{TOPIC}]
limits: {{fence_s: 60, soak_hours: 0}}
"""
WAY = ("verify", "cut", "soak", "rollback")
VICTIMS = ("operator", "producer_proxy", "kafka_bridge", "engine", "kafka")
DONE_S_MAX = 300.0
SUB_STEP_S_MAX = 60.0


class Moving(DualWritten):
    """A broker and a Penstock with a started plan."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        with closing(open_driver().admin(self.connection)) as admin:
            assert admin.create_topics({TOPIC: NewKafkaTopic(PARTITIONS, 1)}) == {}
            until(lambda: admin.topics([TOPIC]), "the topic", 60.0)
        self.penstock = RunningPenstock(folder / "data")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"])
        self.journal = folder / "data" / "journal" / "producer_proxy"
        (folder / "plan.yaml").write_text(PLAN)
        self.penstock.run("migrate", "plan", str(folder / "plan.yaml"), "--accept", "lone-replica")
        self.penstock.run("migrate", "start", "kills")

    def kill_during(self, command, sub_step, victim) -> None:
        """Begin a command, and kill the victim in that sub-step, or when the command has ended before."""
        line = [*PENSTOCK, "migrate", command, "kills", "--data", str(self.penstock.data)]
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

    def finish(self, command) -> None:
        """Resume the command, or begin it again where it was given up, until it has ended well."""
        end, told = time.monotonic() + DONE_S_MAX, b""
        while True:
            (row,) = self.penstock.run("migrate", "status")
            if not row["course"] and row["step"] == COURSES[command].to:
                return
            assert time.monotonic() < end, f"{command} does not end: {row}: {told.decode()}"
            try:
                told = self.penstock.call("migrate", "resume" if row["course"] else command, "kills").stderr
            except subprocess.TimeoutExpired as late:  # it waits for what is being repaired: that is a kill more
                told = late.stderr or b""


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    require(bool(installed()), "pip install penstock[kafka]")
    made = Moving(tmp_path_factory.mktemp("kills"))
    yield made
    made.close()


def test_whatever_is_killed_in_whatever_sub_step_both_sides_end_equal_and_nothing_is_lost(moving):
    chance, load = random.Random(SEED), Load(moving, TOPIC)
    for command in itertools.islice(itertools.cycle(WAY), KILLS):
        sub_step, victim = chance.choice(COURSES[command].sub_steps), chance.choice(VICTIMS)
        print(f"{victim} is killed in {command}: {sub_step}")
        moving.kill_during(command, sub_step, victim)
        moving.finish(command)
        load.wait_for(Code.OK, 20)
    codes = load.stop()
    moving.wait_even()
    in_engine, in_kafka = moving.engine_ids(TOPIC), moving.kafka_ids(TOPIC)
    assert set(in_engine) == set(in_kafka) >= stored_ok(codes)
    for side in (in_engine, in_kafka):
        assert len(side) == len(set(side)), "a message is doubled on one side"
