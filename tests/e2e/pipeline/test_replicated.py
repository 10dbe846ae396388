"""A job beside a broker group with replicas whose master is switched, and then killed: nothing is missing or doubled."""

import pytest
from penstock_client import Message

from pipeline.archive.archive import plan_archive, run_archive, verify_archive
from tests.e2e.pipeline.queries import run_to_end
from tests.waiting import until

pytestmark = pytest.mark.slow

MESSAGES = 400


@pytest.fixture(scope="module")
def penstock_up(penstock_factory):
    return penstock_factory("--replicas", "2")


@pytest.fixture
def blows(penstock_up):
    """What is done to the group while a job runs: a planned switch to the other broker, then the death of the new master."""
    wait_in_sync(penstock_up)

    def switch():
        first = master(penstock_up)
        other = next(name for name in brokers(penstock_up) if name != first)
        penstock_up.run("broker", "switch", "main", "--to", other)
        assert master(penstock_up) == other

    def kill():
        wait_in_sync(penstock_up)
        first = master(penstock_up)
        penstock_up.kill(first)
        until(lambda: master(penstock_up) not in (first, None), "the other broker leads", 60)

    return [switch, kill]


def brokers(penstock):
    return {row["broker"]: row for row in penstock.run("broker", "list")}


def master(penstock):
    return next((name for name, row in brokers(penstock).items() if row["role"] == "master"), None)


def wait_in_sync(penstock):
    def is_so():
        return {row["state"] for row in brokers(penstock).values()} == {"SYNC_REPLICATION"}

    until(is_so, "both brokers are in sync", 60)


@pytest.fixture
def stored(penstock_up, producer):
    """Fill a topic; returns the ids of its messages."""

    def fill(topic):
        penstock_up.run("topic", "create", topic, "--queues", "2", "--durability", "replicated")
        sent = [Message(topic=topic, id=f"m-{number}", key=str(number), body=b"x") for number in range(MESSAGES)]
        assert all(result.ok for result in producer.send_all(sent))
        return sorted(message.id for message in sent)

    return fill


def test_a_stream_is_complete_when_the_master_is_switched_and_killed_between_its_reads(
    spark, options, stored, blows, tmp_path
):
    expected, seen = stored("streamed"), {}

    def strike(frame, number):
        seen[number] = [row.id for row in frame.collect()]
        if blows:
            blows.pop(0)()

    run_to_end(
        lambda: (
            spark.readStream.format("penstock")
            .options(**options(topics="streamed", start="earliest", columns="id", maxMessagesPerTrigger="100"))
            .load()
            .writeStream.foreachBatch(strike)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    )
    assert (blows, sorted(each for batch in seen.values() for each in batch)) == ([], expected)


def test_an_archive_is_complete_by_its_manifest_when_the_master_is_switched_and_killed_during_the_run(
    spark, options, stored, blows, tmp_path
):
    expected = stored("archived")
    url, chosen = str(tmp_path / "archive"), options(topics="archived")

    def strike(done, total):
        if blows and done < total:
            blows.pop(0)()

    run_archive(spark, chosen, url, plan_archive(chosen, url, range_messages=25), strike)
    assert blows == []
    assert verify_archive(spark, url)[1:] == (MESSAGES, [], 0)
    assert sorted(row.id for row in spark.read.parquet(url).select("id").collect()) == expected


def test_a_copy_is_complete_when_the_master_is_switched_and_killed_between_its_batches(
    spark, options, penstock_up, credential, stored, blows, tmp_path
):
    expected = stored("origin")
    penstock_up.run("topic", "create", "target", "--queues", "2", "--durability", "replicated")
    host, port = penstock_up.producer
    write = {"endpoint": f"{host}:{port}", "credential": str(credential), "topic": "target", "idColumn": "id"}

    def strike(frame, number):
        frame.drop("topic").write.format("penstock").options(**write).mode("append").save()
        if blows:
            blows.pop(0)()

    run_to_end(
        lambda: (
            spark.readStream.format("penstock")
            .options(**options(topics="origin", start="earliest", columns="id,key,body", maxMessagesPerTrigger="100"))
            .load()
            .writeStream.foreachBatch(strike)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    )
    rows = spark.read.format("penstock").options(**options(topics="target", columns="id")).load().collect()
    assert (blows, sorted(row.id for row in rows)) == ([], expected)
