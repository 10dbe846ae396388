"""Streaming reads: batches of the size asked for, from the checkpoint on, with the backlog in Spark's progress."""

import json

import pytest
from penstock_client import Message

MESSAGES = 300


@pytest.fixture
def topic(penstock_up, producer, request):
    """A topic of the test's own, with MESSAGES of 100 bytes in two queues."""
    name = f"stream-{abs(hash(request.node.name)) % 10**9}"
    penstock_up.run("topic", "create", name, "--queues", "2")
    fill(producer, name, 0, MESSAGES)
    return name


def fill(producer, topic, first, end):
    sent = [Message(topic=topic, id=f"m-{number}", key=str(number), body=b"x" * 100) for number in range(first, end)]
    assert all(result.ok for result in producer.send_all(sent))


@pytest.fixture
def stream(spark, options, topic, tmp_path):
    """Run a query to its end, over the same checkpoint each time; returns the ids of its batches and its progress."""

    def run(**more):
        batches = {}
        chosen = {"start": "earliest", "columns": "id", **more}
        query = (
            spark.readStream.format("penstock")
            .options(**options(**({} if "topicPattern" in chosen else {"topics": topic}) | chosen))
            .load()
            .writeStream.foreachBatch(
                lambda frame, number: batches.update({number: [row.id for row in frame.collect()]})
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches, [json.loads(each.json) for each in query.recentProgress]

    return run


def ids(batches):
    return sorted(each for batch in batches.values() for each in batch)


def expected(first, end):
    return sorted(f"m-{number}" for number in range(first, end))


def test_a_limit_of_messages_makes_batches_of_that_size_and_the_backlog_is_told(stream):
    batches, progress = stream(maxMessagesPerTrigger="80")
    assert [len(batch) for batch in batches.values()] == [80, 80, 80, 60]
    assert ids(batches) == expected(0, MESSAGES)
    source = progress[0]["sources"][0]
    assert sum(source["latestOffset"].values()) == MESSAGES
    assert sum(source["endOffset"].values()) == 80


def test_a_limit_of_bytes_makes_batches_of_about_that_size(stream):
    batches, _ = stream(maxBytesPerTrigger="10000")
    assert [len(batch) for batch in batches.values()] == [100, 100, 100]
    assert ids(batches) == expected(0, MESSAGES)


def test_a_query_continues_at_its_checkpoint(stream, producer, topic):
    first, _ = stream()
    fill(producer, topic, MESSAGES, MESSAGES + 50)
    second, _ = stream()
    assert (ids(first), ids(second)) == (expected(0, MESSAGES), expected(MESSAGES, MESSAGES + 50))


def test_queues_that_a_topic_gets_later_are_read_from_their_beginning(stream, producer, topic, penstock_up):
    stream()
    penstock_up.run("topic", "set", topic, "--queues", "6")
    fill(producer, topic, MESSAGES, MESSAGES + 100)
    batches, _ = stream()
    assert ids(batches) == expected(MESSAGES, MESSAGES + 100)


def test_the_checkpoint_of_a_query_on_other_topics_is_refused(stream, penstock_up):
    stream()
    penstock_up.run("topic", "create", "elsewhere", "--queues", "1")
    with pytest.raises(Exception, match="use the checkpoint of this query"):
        stream(topics="elsewhere")


def test_a_topic_that_matches_the_pattern_later_is_read_from_its_beginning(
    stream, producer, topic, penstock_up, spark, options
):
    first, _ = stream(topicPattern=f"{topic}.*")
    penstock_up.run("topic", "create", f"{topic}-new", "--queues", "3")
    fill(producer, f"{topic}-new", 1000, 1040)
    second, _ = stream(topicPattern=f"{topic}.*")
    assert (ids(first), ids(second)) == (expected(0, MESSAGES), expected(1000, 1040))

    batch = spark.read.format("penstock").options(**options(topicPattern=f"{topic}(-new)?", columns="topic")).load()
    assert sorted(row.topic for row in batch.collect()) == sorted([topic] * MESSAGES + [f"{topic}-new"] * 40)
    with pytest.raises(Exception, match="topicPattern 'no such': matches no topic"):
        spark.read.format("penstock").options(**options(topicPattern="no such")).load().collect()
