"""Comparisons of a real topic with an archive, with tables of what was sent, and with Kafka: by the commands of docs/spark.md."""

import json
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from penstock_client import Message

from common.kafka.base import ProducerOptions
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords
from penstock.commands.pipeline.group import command
from pipeline.archive.archive import plan_archive, run_archive
from pipeline.reconcile.comparison import differences
from tests.services import require
from tests.services.spark import require_spark
from tests.waiting import until

ROOT = Path(__file__).parents[3]
MESSAGES = 400


@pytest.fixture(scope="module")
def stored(penstock_up, producer):
    penstock_up.run("topic", "create", "orders", "--queues", "2")
    sent = [
        Message(topic="orders", id=f"o-{number}", key=str(number % 9), body=b"body %d" % number,
                properties={"n": str(number)} if number % 3 else None)
        for number in range(MESSAGES)
    ]  # fmt: skip
    assert all(result.ok for result in producer.send_all(sent))
    return sent


@pytest.fixture
def reconcile(options, tmp_path):
    """Run `penstock pipeline reconcile` in this process; returns the exit code, the summary, and the rows of the report."""
    where, report = options(), tmp_path / "report"

    def run(kind, *arguments, at_engine=True):
        proxies = ("--endpoint", where["endpoint"], "--credential", where["credential"]) if at_engine else ()
        line = ["reconcile", kind, *map(str, arguments), *proxies, "--report", str(report), "-o", "json"]
        done = CliRunner().invoke(command, line)
        assert done.exit_code in (0, 1), done.output
        found = json.loads((report / "report.json").read_text())
        assert json.loads(done.stdout)["differences"] == found["differences"]
        if done.exit_code:
            assert "differ: see" in done.stderr
        assert (report / "report.md").read_text().startswith(f"# Topic {found['topic']}: ")
        return done.exit_code, found, {(row["kind"], row["id"]) for row in found["first"]}

    return run


def test_an_archive_is_compared_with_the_engine_where_both_have_offsets(
    spark, options, stored, producer, reconcile, tmp_path
):
    url, chosen = str(tmp_path / "archive"), options(topics="orders")
    run_archive(spark, chosen, url, plan_archive(chosen, url, 100))
    later = Message(topic="orders", id="later", key="1", body=b"not archived")
    assert producer.send(later).ok
    code, found, _ = reconcile("archive", url, "orders")
    assert (code, found["equal"], found["differing_buckets"]) == (0, True, 0)
    assert [side["messages"] for side in found["sides"]] == [MESSAGES, MESSAGES]
    assert len([note for note in found["notes"] if "are not archived: not compared" in note]) == 1
    name = next((tmp_path / "archive" / "topic=orders").rglob("*.parquet"))
    table = pq.ParquetFile(name).read()
    bodies = table.column("body").to_pylist()
    bodies[1] = b"altered"
    table = table.set_column(table.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary()))
    pq.write_table(pa.concat_tables([table.slice(1), table.slice(2, 1)]), name)
    code, found, differing = reconcile("archive", url, "orders")
    one, two, three = table.column("id").to_pylist()[:3]
    assert code == 1
    assert differing == {("missing in archive", one), ("altered", two), ("doubled in archive", three)}
    row = next(each for each in found["first"] if each["kind"] == "altered")
    assert row["engine_first"] is not None
    assert row["engine_first"] == row["archive_first"]


def test_tables_of_what_was_sent_are_compared_by_body_by_hash_or_by_id(stored, reconcile, tmp_path):
    everything = [*stored, Message(topic="orders", id="later", key="1", body=b"not archived")]
    lines = [{"id": each.id, "key": each.key, "body": each.body.decode()} for each in everything]
    table = tmp_path / "sent.jsonl"
    lines[3]["body"] = "other"
    lines.append(lines[5])
    lines.append({"id": "never", "key": None, "body": ""})
    del lines[8]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, found, differing = reconcile("sent", table, "orders")
    assert (code, found["compared"]) == (1, "key, body")
    assert differing == {
        ("altered", "o-3"), ("doubled in sent", "o-5"), ("missing in engine", "never"), ("missing in sent", "o-8"),
    }  # fmt: skip
    hashed = pa.table(
        {"id": [each.id for each in everything], "hash": [sha256(each.body).hexdigest().upper() for each in everything]}
    )
    pq.write_table(hashed, tmp_path / "hashed.parquet")
    code, found, _ = reconcile("sent", tmp_path / "hashed.parquet", "orders")
    assert (code, found["equal"], found["compared"]) == (0, True, "SHA-256 of the body")
    some = pa.table({"id": [*hashed.column("id").to_pylist()[:50], None]})
    pq.write_table(some, tmp_path / "some.parquet")
    code, found, differing = reconcile("sent", tmp_path / "some.parquet", "orders", "--subset")
    assert (code, found["compared"], differing, found["sides"][0]["without_id"]) == (1, "ids only", set(), 1)


def test_when_everything_differs_everything_is_listed_in_the_table_of_findings(spark, stored, reconcile, tmp_path):
    pq.write_table(pa.table({"id": [f"x-{number}" for number in range(70_000)]}), tmp_path / "others.parquet")
    code, found, _ = reconcile("sent", tmp_path / "others.parquet", "orders")
    assert (code, found["differences"]["missing in engine"]) == (1, 70_000)
    assert found["differences"]["missing in sent"] >= MESSAGES
    assert len(found["first"]) == 100
    assert spark.read.parquet(found["findings"]).count() == sum(found["differences"].values())


def test_what_is_not_judged_is_found_as_the_other_copy_and_needs_none(spark):
    rows = [  # side, id, content, is judged
        (0, "outside", 1, True), (1, "outside", 1, False),
        (0, "doubled outside", 1, True), (0, "doubled outside", 1, False), (1, "doubled outside", 1, True),
        (1, "only outside", 1, False),
        (0, "altered outside", 1, True), (1, "altered outside", 2, False),
        (1, "twice", 1, True), (1, "twice", 1, True), (0, "twice", 1, False),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "side INT, id STRING, content LONG, is_judged BOOLEAN")
    hashed = frame.selectExpr("*", "xxhash64(id) AS high", "0L AS low", "0 AS queue", "0L AS offset")
    found = {(row["kind"], row["id"]) for row in differences(hashed).collect()}
    assert found == {("altered", "altered outside"), ("doubled_right", "twice")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sent", "none.jsonl", "orders"), "give either --archive, or --endpoint and --credential"),
        (("sent", "BAD", "orders", "--archive", "x"), "use one JSON object per line"),
        (("kafka", "orders", "--bootstrap", "nowhere", "--endpoint", "x", "--credential", "y"), 'bootstrap "nowhere": use HOST:PORT'),
    ],
)  # fmt: skip
def test_wrong_use_is_told_in_one_line(spark, tmp_path, arguments, sentence):
    (tmp_path / "bad.jsonl").write_text("no json\n")
    line = [str(tmp_path / "bad.jsonl") if each == "BAD" else each for each in arguments]
    done = CliRunner().invoke(command, ["reconcile", *line, "--report", str(tmp_path)])
    assert done.exit_code > 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_among_ten_million_ids_exactly_the_one_missing_doubled_and_altered_are_found():
    """By a process of its own, with a heap of 1 GB; `make reconcileids MESSAGES=100000000` compares more."""
    require_spark()
    command = [sys.executable, "-m", "bench.spark.reconcile", "--messages", "10000000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["messages"] == 10_000_000 and sorted(found["differences"].values()) == [1, 1, 1]


@pytest.mark.slow
def test_a_kafka_topic_is_compared_with_its_copy_in_the_engine(spark, tmp_path):
    require(installed(), "pip install kafka-python")
    from tests.e2e.kafka.home import Home

    home = Home(tmp_path, installed()[0], ["events"]).start()
    try:
        home.create("events")
        count = 500
        producer = open_driver().producer(home.connection, ProducerOptions())
        try:
            results = []
            numbers = range(count)
            producer.produce(
                OutgoingRecords(
                    ["events"] * count, [number % 4 for number in numbers], [int(time.time() * 1000)] * count,
                    [b"\xff%d" % number if number % 7 == 0 else b"k" for number in numbers],
                    [b"%d" % number if number % 5 else None for number in numbers],
                    [[("penstock-id", b"own-%d" % number)] if number % 2 else [] for number in numbers],
                ),
                results.append,
            )  # fmt: skip
            assert producer.flush(30.0)
            assert results[0].all_stored
        finally:
            producer.close(30.0)
        credential = tmp_path / "comparer.json"
        credential.touch(mode=0o600)
        credential.write_text(json.dumps(home.application._asdict()))
        host, port = home.penstock.consumer
        line = [
            "reconcile", "kafka", "events", "--bootstrap", home.brokers.bootstrap, "--endpoint", f"{host}:{port}",
            "--credential", str(credential), "--report", str(tmp_path / "report"), "-o", "json",
        ]  # fmt: skip

        def compared():
            done = CliRunner().invoke(command, line)
            assert done.exit_code in (0, 1), done.output
            return json.loads(done.stdout)

        found = until(lambda: (one := compared())["sides"][1]["messages"] == count and one, "all is copied", 60)
        assert (found["equal"], found["compared"], found["sides"][0]["messages"]) == (True, "key, body", count)
    finally:
        home.close()
