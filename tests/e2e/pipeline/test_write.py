"""Writes by Spark to a real `penstock up`: all rows once, also when they are written again; refused rows are kept."""

import pytest

from pipeline.options import write_options as parsed_write_options
from pipeline.sink.writer import PenstockStreamWriter
from tests.waiting import until

ROWS = 2_500


@pytest.fixture(scope="module")
def write_options(penstock_up, credential):
    def make(**more):
        host, port = penstock_up.producer
        return {"endpoint": f"{host}:{port}", "credential": str(credential), **more}

    return make


@pytest.fixture(scope="module")
def read(spark, options):
    def load(topics, **more):
        return spark.read.format("penstock").options(**options(topics=topics, **more)).load()

    return load


@pytest.fixture(scope="module")
def topic(penstock_up):
    """Create a topic by its name."""

    def make(name, queues=2):
        penstock_up.run("topic", "create", name, "--queues", str(queues))
        return name

    return make


def rows_of(spark, count=ROWS):
    return spark.range(count).selectExpr(
        "concat('id-', id) AS number",
        "concat('body ', id) AS body",
        "concat('key-', id % 10) AS key",
        "IF(id % 2 = 0, 'even', NULL) AS tag",
        "IF(id % 3 = 0, map('third', CAST(id AS STRING)), NULL) AS properties",
    )


def test_rows_become_messages_with_all_their_fields_and_a_second_write_adds_none(spark, topic, read, write_options):
    target = topic("written")
    for _ in range(2):
        rows_of(spark).write.format("penstock").options(
            **write_options(topic=target, idColumn="number", durability="memory")
        ).mode("append").save()
    rows = {row.id: row for row in read(target).collect()}
    assert read(target).count() == ROWS == len(rows)
    for number in range(ROWS):
        row = rows[f"id-{number}"]
        assert (bytes(row.body), row.key) == (f"body {number}".encode(), f"key-{number % 10}")
        assert row.tag == ("even" if number % 2 == 0 else None)
        assert row.properties == ({"third": str(number)} if number % 3 == 0 else None)


def test_messages_of_a_key_keep_the_order_of_the_rows(spark, topic, read, write_options):
    target = topic("ordered")
    rows = rows_of(spark).drop("number").coalesce(1)
    rows.write.format("penstock").options(**write_options(topic=target)).mode("append").save()
    numbers = [
        int(bytes(row.body).split()[1])
        for row in read(target).where("key = 'key-3'").orderBy("queue", "offset").collect()
    ]
    assert numbers == list(range(3, ROWS, 10))


def test_a_copy_by_source_coordinates_may_be_made_twice(topic, read, write_options):
    target = topic("copied", 3)
    for _ in range(2):
        read("written").write.format("penstock").options(**write_options(topic=target)).mode("append").save()
    assert read(target).count() == ROWS
    fields = ("key", "tag", "body", "properties")
    kinds = [sorted(str(tuple(row)) for row in read(each).select(*fields).collect()) for each in ("written", target)]
    assert kinds[0] == kinds[1]


def test_a_topic_per_row_sends_each_row_to_its_own(spark, topic, read, write_options):
    topic("even"), topic("odd")
    rows = spark.range(100).selectExpr("IF(id % 2 = 0, 'even', 'odd') AS topic", "CAST(id AS STRING) AS body")
    rows.write.format("penstock").options(**write_options()).mode("append").save()
    for name, first in (("even", 0), ("odd", 1)):
        assert sorted(int(bytes(row.body)) for row in read(name).collect()) == list(range(first, 100, 2))


def test_refused_rows_go_to_a_file_with_the_reason_and_the_others_are_stored(
    spark, topic, read, write_options, tmp_path
):
    target = topic("partly")
    rows = (
        spark.range(40)
        .coalesce(1)
        .selectExpr(
            "CASE WHEN id = 7 THEN repeat('x', 70) WHEN id = 8 THEN NULL ELSE concat('p-', id) END AS number",
            "CAST(id AS STRING) AS body",
        )
    )
    chosen = write_options(topic=target, idColumn="number", refusedPath=str(tmp_path / "refused"))
    rows.write.format("penstock").options(**chosen).mode("append").save()
    assert sorted(int(bytes(row.body)) for row in read(target).collect()) == [*range(7), *range(9, 40)]
    kept = {row.body: row for row in spark.read.parquet(str(tmp_path / "refused")).collect()}
    assert sorted(kept) == ["7", "8"]
    assert {row.penstock_code for row in kept.values()} == {"INVALID"}
    assert "id is null" in kept["8"].penstock_error


def test_a_refused_row_fails_the_write_when_there_is_no_path_for_it(spark, topic, write_options):
    target = topic("strict")
    rows = spark.range(1).selectExpr("repeat('x', 70) AS number", "'b' AS body")
    with pytest.raises(Exception, match="1 rows were refused, the first with id"):
        rows.write.format("penstock").options(**write_options(topic=target, idColumn="number")).mode("append").save()


def test_a_rate_limit_slows_the_write_down_and_loses_nothing(spark, topic, read, write_options, penstock_up):
    target = topic("limited")
    penstock_up.run("topic", "set", target, "--rate-messages", "1000")
    rows_of(spark).write.format("penstock").options(**write_options(topic=target, idColumn="number")).mode(
        "append"
    ).save()
    assert sorted(row.id for row in read(target).collect()) == sorted(f"id-{number}" for number in range(ROWS))


def test_columns_that_are_no_part_of_a_message_are_told_all_at_once(spark, write_options):
    rows = spark.range(1).selectExpr("id AS colour", "1 AS key")
    with pytest.raises(Exception) as raised:
        rows.write.format("penstock").options(**write_options(durability="forever")).mode("append").save()
    assert "durability 'forever': use topic_default, memory" in str(raised.value)
    with pytest.raises(Exception) as raised:
        rows.write.format("penstock").options(**write_options()).mode("append").save()
    for each in (
        "column colour: is no part",
        "column key: type int: use string",
        "topic: missing",
        "column body: missing",
    ):
        assert each in str(raised.value)


def test_a_streaming_copy_moves_every_message_once_over_its_restarts_and_its_late_batches_are_named(
    spark, topic, read, options, write_options, tmp_path, penstock_up, caplog
):
    target = topic("streamed", 3)
    for limit in ("900", "700"):
        query = (
            spark.readStream.format("penstock")
            .options(**options(topics="written", start="earliest", maxMessagesPerTrigger=limit))
            .load()
            .writeStream.format("penstock")
            .options(**write_options(topic=target))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert read(target).count() == ROWS
    assert len({row.id for row in read(target, columns="id").collect()}) == ROWS

    chosen = write_options(topic=target, windowEndpoint=options()["endpoint"])
    writer = PenstockStreamWriter(parsed_write_options(chosen), str(tmp_path / "checkpoint"))
    penstock_up.run("topic", "set", target, "--id-window-s", "0")
    until(lambda: writer.commit([], 0) or "batch 0: committed" in caplog.text, "the warning", 30)
    assert f"topic {target} recognises an id for 0 s: rows that an earlier attempt had stored" in caplog.text
