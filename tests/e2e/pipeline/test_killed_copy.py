"""A streaming copy whose driver and tasks are killed at random moments: each message is in the target once.

PENSTOCK_COPY_KILLS: number of kills (default 1). `make copykills` runs 20.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from penstock_client import Message

from pipeline.options import read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import queue_bounds
from tests.services.spark import require_spark
from tests.waiting import until

pytestmark = pytest.mark.slow  # several sessions of Spark, each with a JVM of its own

KILLS = int(os.environ.get("PENSTOCK_COPY_KILLS", "1"))
PER_BATCH = 300
MESSAGES = PER_BATCH * (2 + 3 * KILLS)
STEP_S_MAX = 600.0  # of a hang; a busy machine needs minutes for a step


class Copy:
    """The program, and what can be seen of its progress: messages in the target, and files of its checkpoint."""

    def __init__(self, given, root, log):
        self._command = [sys.executable, "-m", "tests.e2e.pipeline.copy_program", json.dumps(given)]
        self._checkpoint = Path(given["checkpoint"])
        self._root, self._log = root, log
        self.process = None

    def start(self):
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self._root, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def files(self, kind):
        """Number of finished files of the checkpoint's folder `offsets` or `commits`."""
        folder = self._checkpoint / kind
        return len([each for each in folder.iterdir() if each.name.isdigit()]) if folder.exists() else 0

    def has_ended(self):
        if self.process.poll() is None:
            return False
        assert self.process.returncode == 0, self._log.read_text()[-3000:]
        return True

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def copy(penstock_up, producer, options, credential, tmp_path, request):
    require_spark()
    for name, queues in (("origin", 2), ("target", 3)):
        penstock_up.run("topic", "create", name, "--queues", str(queues))
    sent = [
        Message(topic="origin", id=f"m-{number}", key=str(number % 50), body=b"%d" % number)
        for number in range(MESSAGES)
    ]
    assert all(result.ok for result in producer.send_all(sent))
    host, port = penstock_up.producer
    made = Copy(
        {
            "read": options(topics="origin", start="earliest", maxMessagesPerTrigger=str(PER_BATCH)),
            "write": {"endpoint": f"{host}:{port}", "credential": str(credential), "topic": "target"},
            "checkpoint": str(tmp_path / "checkpoint"),
        },
        request.config.rootpath,
        tmp_path / "program.log",
    )
    yield made
    if made.process and made.process.poll() is None:
        made.kill()


@pytest.fixture
def copied(options):
    """Number of messages in the target."""
    with PositionPulls(read_options(options(topics="target")).endpoints) as pulls:
        yield lambda: sum(each.end for each in queue_bounds(pulls, ["target"]).values())


def test_a_streaming_copy_killed_at_random_moments_has_every_message_once(copy, copied, spark, options):
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    print(f"seed of the moments: {seed}")
    for _ in range(KILLS):
        moment = moment_of(draw, copy, copied)
        copy.start()
        until(lambda moment=moment: moment() or copy.has_ended(), "the moment of the kill", STEP_S_MAX)
        assert copy.process.poll() is None, "the copy ended before it was killed"
        copy.kill()
    copy.start()
    until(copy.has_ended, "the copy ends", STEP_S_MAX)
    rows = spark.read.format("penstock").options(**options(topics="target", columns="body")).load().collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(MESSAGES))


def moment_of(draw, copy, copied):
    """A condition: a batch is planned, is partly sent, or has been committed."""
    kind = draw.choice(["planned", "sent", "committed"])
    if kind == "sent":
        enough = copied() + draw.randint(1, 2 * PER_BATCH)
        return lambda: copied() >= enough
    folder = "offsets" if kind == "planned" else "commits"
    enough = copy.files(folder) + draw.randint(1, 2)
    return lambda: copy.files(folder) >= enough
