"""`penstock migrate rehearse` with a real broker: all recipes, kills, ^C, and nothing left of it.

PENSTOCK_REHEARSALS=1 rehearses every recipe with a kill in each command; the default is for the check.
"""

import json
import os
import signal
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest

from common.config import open_store
from common.kafka.base import END, NewKafkaTopic, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords, Partition
from penstock.rehearsal.site import directory_of
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PARTITIONS, HISTORY = 2, 30
TOPICS = {"mirror": ["orders", "pay"], "double_write": ["stock"], "double_read": ["mail"]}
KINDS = ("topic", "group", "kafka", "copy_in", "copy_out", "shared_read", "migration", "migration_topic", "application")
REHEARSED_S_MAX = 400.0
ALL = bool(os.environ.get("PENSTOCK_REHEARSALS"))


class Rehearsed:
    """A broker with topics that have a history and a group, and a Penstock with a plan per recipe."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection, self.folder = KafkaConnection("main", (self.brokers.bootstrap,)), folder
        names = [name for each in TOPICS.values() for name in each]
        with closing(open_driver().admin(self.connection)) as admin:
            settings = NewKafkaTopic(PARTITIONS, 1, {"max.message.bytes": "200000"})
            assert admin.create_topics(dict.fromkeys(names, settings)) == {}
            until(lambda: len(admin.topics(names)) == len(names), "the topics", 30.0)
            self._write_history(names)
            for name in names:
                positions = {Partition(name, number): 3 for number in range(PARTITIONS)}
                until(lambda positions=positions: has_set(admin, positions), "the group's positions", 90.0)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        for recipe, topics in TOPICS.items():
            text = f"name: {recipe}\nrecipe: {recipe}\ncluster: main\ntopics: [{', '.join(topics)}]\n"
            file = folder / f"{recipe}.yaml"
            file.write_text(text + ("groups: [workers]\n" if recipe != "double_write" else ""))
            self.penstock.run("migrate", "plan", str(file), "--accept", "lone-replica")

    def _write_history(self, names) -> None:
        producer, results = open_driver().producer(self.connection, ProducerOptions()), []
        try:
            for name in names:
                producer.partitions(name)
                count = HISTORY * PARTITIONS
                partitions = [number % PARTITIONS for number in range(count)]
                bodies = [b"old %d" % number for number in range(count)]
                columns = [name] * count, partitions, [-1] * count, [b"k"] * count, bodies, [()] * count
                producer.produce(OutgoingRecords(*columns), results.append)
            until(lambda: len(results) == len(names), "the history", 30.0)
        finally:
            producer.close(5.0)

    def world(self):
        """All that a rehearsal must leave as it is: configuration with versions, topics with ends, groups."""
        with closing(open_store((self.folder / "data" / "config").as_uri())) as store:
            entries = {kind: store.entries(kind) for kind in KINDS}
        with closing(open_driver().admin(self.connection)) as admin:
            topics = admin.topics()
            ends = admin.offsets([Partition(name, n) for name in topics for n in range(topics[name].partitions)], END)
            groups = {name: admin.group_offsets(name) for name in admin.groups()}
        return {"entries": entries, "topics": topics, "ends": ends, "groups": groups}

    def begin(self, *arguments):
        line = [*PENSTOCK, "migrate", "rehearse", *arguments, "--data", str(self.penstock.data)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rehearse(self, *arguments):
        process = self.begin(*arguments, "-o", "json")
        try:
            out, err = process.communicate(timeout=REHEARSED_S_MAX)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        print(err)
        assert process.returncode == 0, err + out
        return json.loads(out)

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


def has_set(admin, positions):
    """A broker that has just started has no coordinator yet."""
    try:
        admin.set_group_offsets("workers", positions)
    except Exception:
        return False
    return True


def processes_of(run):
    """Command lines of processes that work in the rehearsal's directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(each.read_bytes())
    return [line for line in found if str(directory_of(run)).encode() in line]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    require(bool(installed()), "pip install penstock[kafka]")
    made = Rehearsed(tmp_path_factory.mktemp("rehearsed"))
    yield made
    made.close()


def assert_clean(report, kills):
    assert report["is_clean"] and report["failure"] == "", report
    commands = [each["command"] for each in report["steps"]]
    assert commands == ["start", "verify", "cut", "soak", "rollback", "verify", "cut", "soak", "retire"]
    assert sum(bool(each["killed"]) for each in report["steps"]) == kills
    for verdict in (report["stored"], report["received"]):
        if verdict is not None:
            assert verdict["answered"] > 50
            assert (verdict["lost"], verdict["doubled"], verdict["unordered"]) == (0, 0, 0)
    fenced = [each for each in report["steps"] if "FENCED" in each["caller"]["codes"]]
    assert fenced and all(0 < each["caller"]["fence_s_max"] < 60 for each in fenced)


def test_a_mirror_is_rehearsed_with_a_kill_and_leaves_the_real_world_as_it_was(rehearsed, tmp_path):
    before = rehearsed.world()
    options = ("--kills", "5") if ALL else ("--kills", "1", "--seed", "4", "--soak", "0.5")
    report = rehearsed.rehearse("mirror", "--out", str(tmp_path / "report"), *options)
    assert_clean(report, 5 if ALL else 1)
    assert report["sampled"] == {"orders": HISTORY * PARTITIONS, "pay": HISTORY * PARTITIONS}
    assert report["stored"] is not None and report["differing"] == 0
    assert report["groups"]["workers"].startswith(f"{2 * PARTITIONS} queues set")
    assert rehearsed.world() == before
    assert not directory_of(report["run"]).exists()
    text = (tmp_path / "report" / "rehearsal.md").read_text()
    assert "Nothing was lost, doubled or out of order." in text and f"seed {report['seed']}" in text
    assert json.loads((tmp_path / "report" / "rehearsal.json").read_text()) == report


def run_of(process):
    """The run that a rehearsal prints first, and its further lines."""
    line = process.stderr.readline()
    return line.split("rehearsal ")[1][:6], process.stderr


def test_an_interrupted_rehearsal_removes_what_it_has_made_and_so_does_the_command_after_a_kill(rehearsed):
    before = rehearsed.world()
    process = rehearsed.begin("mirror", "--kills", "0")
    with process:
        run, lines = run_of(process)
        assert any("start: done" in line for line in lines), "it has not come to its first step"
        assert rehearsed.world() != before and directory_of(run).exists()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
    assert process.returncode not in (0, None)
    assert rehearsed.world() == before and not directory_of(run).exists()
    process = rehearsed.begin("mirror", "--kills", "0", "--keep")
    with process:
        run, lines = run_of(process)
        assert any("starting a Penstock" in line for line in lines)
        process.kill()
    assert rehearsed.world() != before
    removed = rehearsed.penstock.run("migrate", "rehearse", "mirror", "--remove", run)
    assert (removed["topics"], removed["data"]) == (2, "removed")
    assert rehearsed.world() == before
    assert processes_of(run) == [], "its `up` was about to start when the command was killed"


@pytest.mark.skipif(not ALL, reason="PENSTOCK_REHEARSALS=1 rehearses every recipe")
@pytest.mark.parametrize("recipe", ["double_write", "double_read"])
def test_every_recipe_is_rehearsed_with_a_kill_in_each_command_that_may_have_one(rehearsed, recipe):
    before = rehearsed.world()
    report = rehearsed.rehearse(recipe, "--kills", "5")
    assert_clean(report, 5)
    assert report["differing"] == (0 if recipe == "double_write" else None)
    assert rehearsed.world() == before
