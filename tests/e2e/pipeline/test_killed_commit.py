"""A streaming copy that is struck in a write, in a commit and after a commit: each message is in the target once, by id."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from penstock_client import Message

from tests.e2e.pipeline.struck_source import FORMAT, StruckSource
from tests.waiting import until

PER_BATCH = 100
MESSAGES = 4 * PER_BATCH
STEP_S_MAX = 600.0  # of a hang; a busy machine needs minutes for a step


@pytest.fixture
def copy(penstock_up, producer, options, credential, tmp_path, request):
    """Options of a copy between two topics of the test's own; the source has its messages."""
    origin, target = (f"{name}-{abs(hash(request.node.name)) % 10**9}" for name in ("origin", "target"))
    penstock_up.run("topic", "create", origin, target, "--queues", "2")
    sent = [Message(topic=origin, id=f"m-{number}", key=str(number), body=b"%d" % number) for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(sent))
    host, port = penstock_up.producer
    marks = tmp_path / "marks"
    marks.mkdir()
    return {
        "read": options(topics=origin, start="earliest", maxMessagesPerTrigger=str(PER_BATCH)),
        "write": {"endpoint": f"{host}:{port}", "credential": str(credential), "topic": target, "marks": str(marks)},
        "checkpoint": str(tmp_path / "checkpoint"), "format": FORMAT,
    }  # fmt: skip


@pytest.fixture
def stored(spark, options, copy):
    """The bodies in the target, as numbers, in order; and the number of different ids."""

    def read():
        chosen = options(topics=copy["write"]["topic"], columns="id,body")
        rows = spark.read.format("penstock").options(**chosen).load().collect()
        return sorted(int(bytes(row.body)) for row in rows), len({row.id for row in rows})

    return read


def test_workers_that_die_in_a_write_and_in_a_commit_double_nothing(spark, copy, stored):
    spark.dataSource.register(StruckSource)
    strikes = json.dumps([["write", 0, "die"], ["commit", 1, "die"]])

    def run():
        query = (
            spark.readStream.format("penstock")
            .options(**copy["read"])
            .load()
            .writeStream.format(FORMAT)
            .options(**copy["write"], strikes=strikes)
            .option("checkpointLocation", copy["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match=r"(?i)crashed|exited|EOF|commit"):
        run()
    assert sorted(path.name for path in Path(copy["write"]["marks"]).iterdir()) == ["commit-1", "write-0"]
    bodies, ids = stored()
    assert len(bodies) == ids == 2 * PER_BATCH
    run()
    assert stored() == (list(range(MESSAGES)), MESSAGES)


@pytest.mark.slow
def test_a_driver_that_is_killed_in_a_write_in_a_commit_and_after_a_commit_doubles_nothing(
    copy, stored, tmp_path, request
):
    copy["write"]["strikes"] = json.dumps([["write", 0, "wait"], ["commit", 1, "wait"]])
    marks, commits = Path(copy["write"]["marks"]), Path(copy["checkpoint"]) / "commits"
    for reached in ((marks / "write-0").exists, (marks / "commit-1").exists, (commits / "2").exists):
        process = start(copy, request.config.rootpath, tmp_path / "program.log")
        until(lambda process=process, reached=reached: reached() or process.poll() is not None, "the step", STEP_S_MAX)
        is_running = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert is_running, (tmp_path / "program.log").read_text()[-3000:]
    process = start(copy, request.config.rootpath, tmp_path / "program.log")
    assert process.wait(STEP_S_MAX) == 0, (tmp_path / "program.log").read_text()[-3000:]
    assert stored() == (list(range(MESSAGES)), MESSAGES)


def start(copy, root, log):
    command = [sys.executable, "-m", "tests.e2e.pipeline.copy_program", json.dumps(copy)]
    with log.open("a") as out:
        return subprocess.Popen(command, cwd=root, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
