"""Batch reads by Spark from a real `penstock up`: what is stored is what is read, and a wrong wish is told in one message."""

import json

import pytest
from penstock_client import Message
from pyspark.sql.types import LongType, StringType, StructField, StructType

MESSAGES = 500
QUEUES = 4
ORDER = StructType([StructField("number", LongType()), StructField("item", StringType())])


@pytest.fixture(scope="module")
def stored(penstock_up, producer):
    """Messages of topic `orders`, by id, with every field in use."""
    penstock_up.run("topic", "create", "orders", "--queues", str(QUEUES))
    messages = [
        Message(
            topic="orders",
            id=f"order-{number}",
            key=f"customer-{number % 7}" if number % 3 else None,
            tag="large" if number % 5 == 0 else None,
            body=json.dumps({"number": number, "item": f"boots {number}"}).encode(),
            properties={"shop": f"s{number % 2}", "näme": "wért"} if number % 4 else None,
        )
        for number in range(MESSAGES)
    ]
    assert all(result.ok for result in producer.send_all(messages))
    return {message.id: message for message in messages}


@pytest.fixture(scope="module")
def read(spark, options, stored):
    def load(topics="orders", **more):
        return spark.read.format("penstock").options(**options(topics=topics, **more)).load()

    return load


def test_a_format_that_nobody_registered_reads_every_message_with_all_its_fields(read, stored):
    rows = read().collect()
    assert len(rows) == MESSAGES
    for row in rows:
        message = stored[row.id]
        assert (row.topic, row.key, row.tag, bytes(row.body)) == ("orders", message.key, message.tag, message.body)
        assert row.properties == message.properties
        assert (row.attempt, row.source) == (0, None)
    assert {row.queue for row in rows} == set(range(QUEUES))
    assert sorted(row.offset for row in rows if row.queue == 0) == list(range(sum(row.queue == 0 for row in rows)))


def test_the_same_ranges_cut_into_more_partitions_are_the_same_rows(read):
    cut = read(minPartitions="16")
    assert cut.rdd.getNumPartitions() >= 16
    whole = read()
    assert whole.rdd.getNumPartitions() == QUEUES
    assert sorted((row.queue, row.offset, row.id) for row in cut.collect()) == sorted(
        (row.queue, row.offset, row.id) for row in whole.collect()
    )


def test_offsets_name_exactly_what_is_read(read):
    start = json.dumps({"orders": {str(queue): 2 for queue in range(QUEUES)}})
    end = json.dumps({"orders": {str(queue): 5 for queue in range(QUEUES)}})
    rows = read(start=start, end=end, columns="queue,offset").collect()
    assert sorted(tuple(row) for row in rows) == [(queue, offset) for queue in range(QUEUES) for offset in (2, 3, 4)]


def test_filters_on_queue_and_offset_leave_out_ranges(read):
    kept = read(pushFilters="true", columns="queue,offset").where(
        "queue = 2 AND offset >= 3 AND offset < 9 AND offset <> 5"
    )
    assert kept.rdd.getNumPartitions() == 1
    assert sorted(tuple(row) for row in kept.collect()) == [(2, offset) for offset in (3, 4, 6, 7, 8)]


def test_filters_on_tag_key_and_time_are_tested_before_rows_are_built(read):
    times = sorted(row.stored_at for row in read(columns="stored_at").collect())
    middle = times[len(times) // 2].isoformat(" ")
    texts = ("tag = 'large'", "tag IS NULL AND key IN ('customer-1', 'customer-2')")
    for condition in (*texts, f"stored_at >= '{middle}'", f"stored_at < '{middle}'"):
        pushed, whole = read(pushFilters="true").where(condition), read().where(condition)
        expected = sorted(row.id for row in whole.collect())
        assert sorted(row.id for row in pushed.collect()) == expected
        assert (rows_built(pushed), rows_built(whole)) == (len(expected), MESSAGES), condition


def rows_built(frame):
    """The rows that the source gave to Spark, in the last run of the frame."""
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return scan.metrics().apply("numOutputRows").value()


def test_a_filter_in_the_language_of_groups_is_tested_before_rows_are_built(read, stored):
    rows = read(filter="shop = 's1' AND TAGS IS NULL", columns="id").collect()
    assert {row.id for row in rows} == {
        each for each, message in stored.items() if (message.properties or {}).get("shop") == "s1" and not message.tag
    }
    with pytest.raises(Exception, match="filter: at character 8"):
        read(filter="shop = =")


def test_a_time_divides_the_messages(read):
    times = sorted(row.stored_at for row in read(columns="stored_at").collect())
    middle = times[len(times) // 2]
    text = middle.isoformat() + "+00:00"
    before, after = read(end=text).count(), read(start=text).count()
    assert before + after == MESSAGES
    assert after >= len(times) - len(times) // 2


def test_columns_come_in_the_order_asked_for_and_only_those(read):
    assert read(columns="id,queue").columns == ["id", "queue"]
    assert len({row.id for row in read(columns="id,queue").collect()}) == MESSAGES


def test_json_bodies_become_columns_of_the_schema(read, stored):
    rows = (
        read(body="json", bodySchema=ORDER.json(), columns="id,body").select("id", "body.number", "body.item").collect()
    )
    assert {row.id: (row.number, row.item) for row in rows} == {
        each: (json.loads(message.body)["number"], json.loads(message.body)["item"]) for each, message in stored.items()
    }


def test_bodies_that_are_no_json_go_to_a_side_column(spark, penstock_up, producer, options):
    penstock_up.run("topic", "create", "mixed", "--queues", "1")
    bodies = [
        b'{"number": 1, "item": "a"}',
        b"{broken",
        b'{"number": "x"}',
        b"",
        b'{"number": 2,\n "more": 3}',
        b"\xff",
        b"[1]",
    ]
    assert all(result.ok for result in producer.send_all([Message(topic="mixed", body=body) for body in bodies]))
    frame = (
        spark.read.format("penstock").options(**options(topics="mixed", body="json", bodySchema=ORDER.json())).load()
    )
    rows = frame.orderBy("offset").collect()
    assert [row.body and (row.body.number, row.body.item) for row in rows] == [
        (1, "a"), None, None, None, (2, None), None, None,
    ]  # fmt: skip
    assert [row.malformed and bytes(row.malformed) for row in rows] == [
        None, b"{broken", b'{"number": "x"}', b"", None, b"\xff", b"[1]",
    ]  # fmt: skip
    texts = (
        spark.read.format("penstock")
        .options(**options(topics="mixed", body="string"))
        .load()
        .orderBy("offset")
        .collect()
    )
    assert (texts[1].body, texts[5].body, bytes(texts[5].malformed)) == ("{broken", None, b"\xff")


def test_a_body_of_four_mebibytes_is_read_whole(spark, penstock_up, producer, options):
    penstock_up.run("topic", "create", "large", "--queues", "1")
    bodies = [bytes([number]) * (4 << 20) for number in range(3)]
    for body in bodies:
        producer.send(Message(topic="large", body=body))
    rows = spark.read.format("penstock").options(**options(topics="large", columns="body")).load().collect()
    assert [bytes(row.body) for row in rows] == bodies


def test_an_empty_topic_is_an_empty_table(spark, penstock_up, options):
    penstock_up.run("topic", "create", "empty", "--queues", "2")
    assert spark.read.format("penstock").options(**options(topics="empty")).load().count() == 0


def test_all_wrong_options_are_told_at_once_with_what_they_take(spark, tmp_path):
    wrong = {
        "endpoint": "nowhere", "credential": str(tmp_path / "none.json"), "start": "yesterday", "minPartitions": "0",
        "columns": "id,colour", "body": "xml", "failOnDataLoss": "perhaps", "colour": "red",
    }  # fmt: skip
    with pytest.raises(Exception) as raised:
        spark.read.format("penstock").options(**wrong).load()
    told = str(raised.value)
    for each in (
        "endpoint 'nowhere': use HOST:PORT", "none.json: no such file", "topics: missing", "use earliest, latest",
        "minPartitions '0': use 1 to", "columns 'id,colour': use some of topic", "body 'xml': use binary, string or json",
        "failOnDataLoss 'perhaps': use true or false", "unknown: colour",
    ):  # fmt: skip
        assert each in told


def test_an_unknown_topic_is_told_by_its_name(spark, options):
    with pytest.raises(Exception, match="topic nothing queue 0: UNKNOWN_TOPIC"):
        spark.read.format("penstock").options(**options(topics="nothing")).load().collect()


def test_the_secret_is_in_no_plan(read, credential):
    frame = read()
    secret = json.loads(credential.read_text())["secret"]
    frame.collect()
    plan = frame._jdf.queryExecution().toString()
    assert "penstock" in plan
    assert secret not in plan
