"""What happens to a job when processes die under it, messages are deleted before it reads them, or its key is revoked."""

import json
import os
import subprocess

import pytest
from click.testing import CliRunner
from penstock_client import Message

from penstock.commands.pipeline.group import command
from pipeline.archive.archive import plan_archive, run_archive, verify_archive
from pipeline.errors import CallRefused
from pipeline.options import read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import TopicQueue, queue_bounds
from tests.e2e.pipeline.queries import run_to_end
from tests.services.small_disk import mounted
from tests.waiting import until

pytestmark = pytest.mark.slow

MESSAGES = 400


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 1 MiB."""
    with mounted(tmp_path / "disk", "1m") as folder:
        yield folder


def test_a_stream_is_complete_when_proxy_and_engine_are_killed_between_its_reads(
    spark, options, penstock_up, producer, tmp_path
):
    penstock_up.run("topic", "create", "struck", "--queues", "2", "--durability", "fsync")
    sent = [Message(topic="struck", id=f"m-{number}", key=str(number), body=b"x") for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(sent))
    victims, seen = ["consumer_proxy", "engine"], []

    def strike(frame, number):
        seen.extend(row.id for row in frame.collect())
        if victims:
            penstock_up.kill(victims.pop(0))

    run_to_end(
        lambda: (
            spark.readStream.format("penstock")
            .options(**options(topics="struck", start="earliest", columns="id", maxMessagesPerTrigger="100"))
            .load()
            .writeStream.foreachBatch(strike)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    )
    assert (victims, sorted(seen)) == ([], sorted(message.id for message in sent))


def test_an_archive_is_complete_by_its_manifest_when_engine_and_proxy_are_killed_during_the_run(
    spark, options, penstock_up, producer, tmp_path
):
    penstock_up.run("topic", "create", "kept", "--queues", "2", "--durability", "fsync")
    sent = [Message(topic="kept", id=f"m-{number}", key=str(number), body=b"x") for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(sent))
    url, chosen, victims = str(tmp_path / "archive"), options(topics="kept"), ["engine", "consumer_proxy"]

    def strike(done, total):
        if victims and done < total:
            penstock_up.kill(victims.pop(0))

    run_archive(spark, chosen, url, plan_archive(chosen, url, range_messages=25), strike)
    assert victims == []
    assert verify_archive(spark, url)[1:] == (MESSAGES, [], 0)
    rows = spark.read.parquet(url).select("id").collect()
    assert sorted(row.id for row in rows) == sorted(message.id for message in sent)


def test_a_full_disk_ends_an_archive_with_its_reason_and_the_next_run_completes_it(
    spark, options, penstock_up, producer, small_disk
):
    penstock_up.run("topic", "create", "bulky", "--queues", "1")
    sent = [Message(topic="bulky", id=f"m-{number}", body=os.urandom(20_000)) for number in range(100)]
    assert all(result.ok for result in producer.send_all(sent))
    where, url = options(), str(small_disk / "archive")
    line = ["archive", "run", url, "bulky", "--range", "20", "--endpoint", where["endpoint"], "--credential"]
    line += [where["credential"], "-o", "json"]
    failed = CliRunner().invoke(command, line)
    assert failed.exit_code == 1
    assert "No space left on device" in failed.stderr.splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert CliRunner().invoke(command, line).exit_code == 0
    assert verify_archive(spark, url)[1:] == (len(sent), [], 0)


def test_a_topic_that_is_deleted_ends_a_stream_with_its_name(spark, options, penstock_up, producer, tmp_path):
    penstock_up.run("topic", "create", "gone", "--queues", "1")
    assert producer.send(Message(topic="gone", body=b"x")).ok

    def stream():
        run_to_end(
            lambda: (
                spark.readStream.format("penstock")
                .options(**options(topics="gone", start="earliest", timeoutSeconds="5"))
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
        )

    stream()
    penstock_up.run("topic", "delete", "gone")
    with pytest.raises(Exception, match=r"topic gone.*UNKNOWN_TOPIC"):
        stream()


def test_messages_that_retention_took_fail_a_read_or_are_skipped(spark, options, penstock_up, producer):
    penstock_up.run("topic", "create", "short", "--queues", "1", "--retention-mib", "1")
    bodies = [bytes([number]) * (300 << 10) for number in range(8)]
    for body in bodies:
        producer.send(Message(topic="short", body=body))
    with PositionPulls(read_options(options(topics="short")).endpoints) as pulls:
        bounds = until(
            lambda: (found := queue_bounds(pulls, ["short"])[TopicQueue("short", 0)]).first and found,
            "the topic's retention takes effect",
            30,
        )
    chosen = {"start": json.dumps({"short": {"0": 0}}), "columns": "offset,body"}
    frame = spark.read.format("penstock")
    with pytest.raises(Exception, match="offset 0 is no longer stored, the first one is"):
        frame.options(**options(topics="short", **chosen)).load().collect()
    rows = frame.options(**options(topics="short", failOnDataLoss="false", **chosen)).load().orderBy("offset").collect()
    assert [bytes(row.body) for row in rows] == bodies[bounds.first :]


def test_a_key_that_is_revoked_ends_a_job_with_the_code(spark, options, penstock_up, tmp_path):
    penstock_up.run("topic", "create", "closed", "--queues", "1")
    made = penstock_up.application("leaver", pull=["*"])
    path = tmp_path / "leaver.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(made._asdict()))
    frame = spark.read.format("penstock").options(**options(topics="closed") | {"credential": str(path)})
    assert frame.load().count() == 0
    penstock_up.run("app", "delete", "leaver")
    until(
        lambda: is_refused(read_options(options(topics="closed") | {"credential": str(path)})), "proxies know of it", 30
    )
    with pytest.raises(Exception, match="UNAUTHENTICATED"):
        frame.load().collect()


def test_a_key_that_is_revoked_in_mid_stream_ends_it_and_a_new_key_in_the_file_goes_on_without_a_gap(
    spark, options, penstock_up, producer, tmp_path
):
    penstock_up.run("topic", "create", "rotated", "--queues", "2")
    sent = [Message(topic="rotated", id=f"m-{number}", key=str(number), body=b"x") for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(sent))
    made = penstock_up.application("rotating", pull=["*"])
    path = tmp_path / "rotating.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(made._asdict()))
    chosen, seen, steps = options(topics="rotated") | {"credential": str(path)}, {}, []

    def collect(frame, number):
        seen[number] = [row.id for row in frame.collect()]
        if steps:
            steps.pop(0)()

    def run():
        run_to_end(
            lambda: (
                spark.readStream.format("penstock")
                .options(**chosen, start="earliest", columns="id", maxMessagesPerTrigger="100")
                .load()
                .writeStream.foreachBatch(collect)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
        )

    def rotate():
        """As a rotation that a job must not notice: a second key in the file, then the first one is revoked."""
        new = penstock_up.run("app", "rotate", "rotating")
        old = tmp_path / "old.json"
        path.rename(old)
        path.touch(mode=0o600)
        path.write_text(json.dumps({"app": "rotating", "key_id": new["key_id"], "secret": new["secret"]}))
        penstock_up.run("app", "revoke", "rotating", made.key_id)
        until(lambda: is_refused(read_options(chosen | {"credential": str(old)})), "proxies know of it", 30)

    def leave():
        penstock_up.run("app", "delete", "rotating")
        until(lambda: is_refused(read_options(chosen)), "proxies know of it", 30)

    steps += [rotate, leave]
    with pytest.raises(Exception, match="UNAUTHENTICATED"):
        run()
    assert len(seen) >= 2
    again = penstock_up.application("rotating", pull=["*"])
    path.write_text(json.dumps(again._asdict()))
    run()
    assert sorted(each for batch in seen.values() for each in batch) == sorted(message.id for message in sent)


def test_a_write_with_a_revoked_key_fails_and_moves_no_row_to_the_refused_ones(spark, penstock_up, tmp_path):
    penstock_up.run("topic", "create", "target", "--queues", "1")
    made = penstock_up.application("writer", send=["*"])
    path, refused = tmp_path / "writer.json", tmp_path / "refused"
    path.touch(mode=0o600)
    path.write_text(json.dumps({**made._asdict(), "secret": made.secret[::-1]}))
    host, port = penstock_up.producer
    chosen = {"endpoint": f"{host}:{port}", "credential": str(path), "topic": "target", "refusedPath": str(refused)}
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS body")
    with pytest.raises(Exception, match="send: UNAUTHENTICATED"):
        rows.write.format("penstock").options(**chosen).mode("append").save()
    assert not list(refused.rglob("*.parquet"))


def is_refused(chosen):
    try:
        with PositionPulls(chosen.endpoints) as pulls:
            queue_bounds(pulls, chosen.topics)
    except CallRefused:
        return True
    return False
