"""Replays from topic to topic: a filter, times of storing kept and divided, and a kill after which nothing is doubled."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from penstock_client import Message

from penstock.commands.pipeline.group import command
from pipeline.options import read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import queue_bounds
from pipeline.replay import replay, rows_to_replay
from pipeline.replay_time import timed
from tests.waiting import until

MESSAGES = 1_200
STEP_S_MAX = 300.0


@pytest.fixture(scope="module")
def origin(penstock_up, producer):
    penstock_up.run("topic", "create", "origin", "--queues", "2")
    sent = [
        Message(topic="origin", id=f"m-{number}", key=str(number % 50), body=b"%d" % number,
                properties={"shop": f"s{number % 3}"})
        for number in range(MESSAGES)
    ]  # fmt: skip
    assert all(result.ok for result in producer.send_all(sent))
    return {each.id: each for each in sent}


@pytest.fixture
def arguments(penstock_up, options, credential):
    """Arguments of a replay of `origin` into a topic that is made."""

    def make(target, *more):
        penstock_up.run("topic", "create", target, "--queues", "3")
        source = ("--from-topic", "origin", "--from-endpoint", options()["endpoint"])
        host, port = penstock_up.producer
        return ["replay", *source, target, "--endpoint", f"{host}:{port}", "--credential", str(credential), *more]

    return make


@pytest.fixture
def stored_in(spark, options):
    return lambda topic: spark.read.format("penstock").options(**options(topics=topic)).load().orderBy("stored_at")


def test_a_topic_is_replayed_by_filter_into_another_one_and_a_second_run_stores_nothing_more(
    spark, origin, arguments, stored_in, tmp_path
):
    given = arguments("some", "--filter", "shop = 's1'", "--set", "tag='again'", "--speed", "1000", "-o", "json")
    chosen = {each for each, message in origin.items() if message.properties["shop"] == "s1"}
    planned = json.loads(CliRunner().invoke(command, [*given, "--dry-run"]).stdout)
    assert (planned["rows"], planned["dry_run"]) == (len(chosen), True)
    assert planned["lasts_s"] < 5
    for _ in range(2):
        done = CliRunner().invoke(command, [*given, "--journal", str(tmp_path / "journal")])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert (told["rows"], told["id_window_s"]) == (len(chosen), 600)
    rows = stored_in("some").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(origin[each].body for each in chosen)
    assert {row.tag for row in rows} == {"again"}

    journal = json.loads((tmp_path / "journal").read_text())
    (tmp_path / "journal").write_text(json.dumps({**journal, "began_ms": journal["began_ms"] - 900_000}))
    late = CliRunner().invoke(command, [*given, "--journal", str(tmp_path / "journal")])
    assert (late.exit_code, "recognises an id for 600 s" in late.stderr) == (1, True)


def test_gaps_between_times_of_storing_are_kept_and_divided(spark, penstock_up, credential, stored_in):
    """Times of an archive of three minutes, 60 times as fast, the last gap bounded to one second."""
    penstock_up.run("topic", "create", "timed", "--queues", "1")
    began = datetime(2026, 1, 31, 12, tzinfo=UTC)
    given = [
        (
            "origin",
            at % 2,
            at,
            f"t-{at}",
            "k",
            None,
            bytearray(str(at).encode()),
            {},
            began + timedelta(seconds=seconds),
        )
        for at, seconds in enumerate([0, 0, 60, 61, 60, 120, 86_400])  # the fifth by a clock that was set back
    ]
    texts = ", ".join(f"{name} string" for name in ("id", "key", "tag"))
    columns = f"topic string, queue int, offset long, {texts}, body binary, properties map<string,string>, stored_at timestamp"
    rows, lasts_s = timed(spark.createDataFrame(given, columns).coalesce(1), 60, 1.0)
    assert 3.0 <= lasts_s < 3.1
    host, port = penstock_up.producer
    target = {"endpoint": f"{host}:{port}", "credential": str(credential), "topic": "timed"}
    sent_after_s = time.time()
    assert replay(rows_to_replay(rows, "", keep_ids=True), target, keep_ids=True) == len(given)
    stored = {row.id: row.stored_at.timestamp() - sent_after_s for row in stored_in("timed").collect()}
    due_s = {"t-0": 0, "t-1": 0, "t-2": 1, "t-3": 1.016, "t-4": 1, "t-5": 2, "t-6": 3}
    assert stored.keys() == due_s.keys()
    assert all(stored[each] >= seconds for each, seconds in due_s.items())


@pytest.mark.slow
def test_a_replay_that_is_killed_and_run_again_leaves_each_message_once(
    spark, origin, arguments, options, stored_in, request, tmp_path
):
    given = arguments("killed")
    with PositionPulls(read_options(options(topics="killed")).endpoints) as pulls:
        process = start(given, ["--rate", "150"], request.config.rootpath, tmp_path)
        until(lambda: stored(pulls) > 100 or process.poll() is not None, "a part is stored", STEP_S_MAX)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert 0 < stored(pulls) < MESSAGES
    process = start(given, [], request.config.rootpath, tmp_path)
    assert process.wait(STEP_S_MAX) == 0, (tmp_path / "log").read_text()[-2000:]
    assert sorted(int(bytes(row.body)) for row in stored_in("killed").collect()) == list(range(MESSAGES))


def stored(pulls):
    return sum(each.end for each in queue_bounds(pulls, ["killed"]).values())


def start(given, more, root, folder):
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "pipeline", *given, *more, "--master", "local[2]"],
            cwd=root, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
