"""The example in Flink on a real `penstock up`: killed and restored from its last checkpoint, it counts each rating once."""

import json
import shutil
import signal
import subprocess
import urllib.request
from collections import Counter

import pytest
from penstock_client import Message

from pipeline.examples.setting import RATINGS
from pipeline.options import read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import queue_bounds
from pipeline.source.ranges import OffsetRange
from pipeline.source.read_range import read_range
from tests.services import require, thrift_toolchains
from tests.waiting import until

pytestmark = pytest.mark.slow  # two starts of Flink

STEP_S_MAX = 90.0
PART = 500


class FlinkJob:
    """The job in a process of its own; `folder` has its checkpoints and its log."""

    def __init__(self, arguments, folder):
        self._arguments, self._folder = arguments, folder
        self._process = None

    def start(self, *more):
        line = ["java", "@java.options", "io.penstock.flink.RatingsPerUser", *self._arguments, *more]
        with (self._folder / "flink.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*line, "--checkpoints", str(self._folder / "checkpoints")],
                cwd=thrift_toolchains.CLIENTS / "java" / "flink", stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def checkpoints(self):
        """Complete checkpoints of all runs, the newest last."""
        found = (self._folder / "checkpoints").glob("*/chk-*/_metadata")
        return [each.parent for each in sorted(found, key=lambda each: each.stat().st_mtime_ns)]

    def until(self, condition, what):
        def is_met():
            assert self._process.poll() is None, (self._folder / "flink.log").read_text()[-3000:]
            return condition()

        return until(is_met, what, STEP_S_MAX)

    def kill(self):
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@pytest.fixture
def job(penstock_up, options, credential, tmp_path):
    require(shutil.which("java"), "Flink needs Java: apt install default-jdk-headless")
    thrift_toolchains.build("java")
    thrift_toolchains.make("flink")
    penstock_up.run("topic", "create", "ratings", "totals", "--queues", "3")
    made = FlinkJob(
        [
            "--consumer", options()["endpoint"], "--producer", "{}:{}".format(*penstock_up.producer),
            "--credential", str(credential), "--from", "ratings", "--to", "totals",
        ],
        tmp_path,
    )  # fmt: skip
    yield made
    made.kill()


@pytest.fixture
def bounds(options):
    """The bounds of the queues of `totals`."""
    with PositionPulls(read_options(options(topics="totals")).endpoints) as pulls:
        yield lambda: queue_bounds(pulls, ["totals"])


def test_a_job_that_is_killed_goes_on_at_its_checkpoint_and_counts_each_rating_once(
    job, bounds, options, producer, penstock_up
):
    ratings = [line.split("::") for line in RATINGS.read_text().split()]

    def send(first, end):
        sent = [
            Message(topic="ratings", key=user, body=json.dumps({"user": user, "rating": float(rating)}).encode())
            for user, _, rating, _ in ratings[first:end]
        ]
        assert all(result.ok for result in producer.send_all(sent))

    def results():
        return sum(each.end for each in bounds().values())

    send(0, PART)
    job.start()
    job.until(lambda: results() == PART, "the first ratings are counted")
    before = job.checkpoints()
    job.until(lambda: job.checkpoints() != before, "a checkpoint after them")
    send(PART, 2 * PART)
    job.until(lambda: results() > PART, "ratings after the checkpoint are counted")
    job.kill()
    send(2 * PART, len(ratings) - PART // 2)
    job.start("--restore", str(job.checkpoints()[-1]))
    job.until(lambda: results() > 2 * PART, "the restored job counts")
    penstock_up.kill("consumer_proxy")
    send(len(ratings) - PART // 2, len(ratings))
    job.until(lambda: results() >= len(ratings), "all ratings are counted")
    before = job.checkpoints()
    job.until(lambda: job.checkpoints() != before, "nothing is left to send")
    assert totals(options, bounds()) == expected(ratings)
    # A job that had begun anew would have sent the first part again, too.
    assert duplicates(penstock_up) <= PART


def duplicates(penstock_up):
    """Messages that were sent again and not stored a second time."""
    with urllib.request.urlopen(f"http://127.0.0.1:{penstock_up.facts['ops']['engine']}/metrics", timeout=5) as page:
        lines = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line[:1] != "#")
    return float(lines["penstock_engine_duplicates_total"])


def totals(options, bounds):
    """What is stored of each user: number of ratings and their sum, in the order of the queue."""
    found = {}
    for (topic, queue), each in bounds.items():
        part = OffsetRange(topic, queue, each.first, each.end)
        for batch in read_range(read_options(options(topics=topic)), ("body",), part):
            for body in batch.column("body").to_pylist():
                total = json.loads(body)
                found.setdefault(total["user"], []).append((total["ratings"], total["sum"]))
    return found


def expected(ratings):
    found, number, total = {}, Counter(), Counter()
    for user, _, rating, _ in ratings:
        number[user] += 1
        total[user] += float(rating)
        found.setdefault(user, []).append((number[user], total[user]))
    return found
