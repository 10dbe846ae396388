"""Consumer groups that move between Kafka and the engine, and groups that nobody named: a real broker, real consumers."""

import json
from contextlib import closing, contextmanager

import pytest

from common.contract import Code, Message, Verdict
from common.kafka.base import NewKafkaTopic
from common.kafka.records import Partition
from tests.e2e.kafka.home import Puller, Sender
from tests.fault.kafka.test_shapes_and_positions import PLAN, Changing
from tests.waiting import until

READ_S_MAX = 60.0


class KafkaMember:
    """A consumer of Kafka in a group, which commits only when it is told to."""

    def __init__(self, changing, topic, group) -> None:
        from confluent_kafka import Consumer

        self.ids: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": changing.brokers.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._consumer.subscribe([topic])

    def take(self, count):
        """Read until it has this number of messages, and commit them."""

        def has_read():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.ids.append(dict(message.headers())["penstock-id"].decode())
                self._consumer.commit(message, asynchronous=False)
            return len(self.ids) >= count

        until(has_read, f"{count} messages at Kafka, has {len(self.ids)}", READ_S_MAX)
        return self.ids

    def has_joined(self):
        self._consumer.poll(0.1)
        return bool(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    made = Changing(tmp_path_factory.mktemp("moving"))
    yield made
    made.close()


@contextmanager
def member(changing, topic, group):
    made = KafkaMember(changing, topic, group)
    try:
        yield made
    finally:
        made.close()


def pulled(changing, topic, group, count):
    """Pull messages here and acknowledge them; returns their ids."""
    ids = []
    with closing(Puller(changing, group)) as puller:

        def has_pulled():
            ids.extend(each.message.id for each in puller.pull(topic, max_messages=min(10, count - len(ids))))
            return len(ids) >= count

        until(has_pulled, f"{count} messages here", READ_S_MAX)
        acknowledge(puller, topic)
    return ids


def acknowledge(puller, topic):
    """Give what was pulled its verdicts, and get nothing new."""
    for each in puller.pull(topic, wait_ms=0, max_messages=1):
        puller.acks = []  # its lease ends, and it is delivered again
        assert each.message.id


def positions(changing, topic, group, *options, code=0):
    done = changing.penstock.call("migrate", "positions", topic, "--group", group, *options, "-o", "json")
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout) if code == 0 else done.stderr.decode()


def test_a_group_that_pulled_here_goes_on_in_kafka_after_a_roll_back(changing):
    topic, group = "returned", "billing"
    changing.plan(topic, partitions=2)
    sent = changing.send(topic, "before", 20)
    changing.way(topic, "verify")
    handled = pulled(changing, topic, group, 20)
    changing.way(topic, "cut", "soak")
    sent += changing.send(topic, "own", 60)
    handled += pulled(changing, topic, group, 20)
    with closing(Puller(changing, group)) as puller:
        for verdict, delay_ms in ((Verdict.RETRY, 3_600_000), (Verdict.REJECT, None)):
            until(lambda: puller.pull(topic, max_messages=2), "messages here", READ_S_MAX)
            puller.verdict(verdict, delay_ms)
        more = until(lambda: puller.pull(topic, max_messages=5), "messages here", READ_S_MAX)
        acknowledge(puller, topic)
        handled += [each.message.id for each in more]
    delay(changing, topic)
    shown = ("migrate", "positions", topic, "--group", group, "--to", "kafka")
    until(lambda: changing.penstock.call(*shown).returncode == 0, "the copy back has what was sent", READ_S_MAX)
    changing.migrate("rollback", topic, "--accept", "dead-letters", "--accept", "delayed")
    sent += changing.send(topic, "after", 10)
    rows = positions(changing, topic, group, "--to", "kafka")
    assert sum(each["withheld"] for each in rows) == 2 and {each["kafka_now"] for each in rows} == {None}
    assert positions(changing, topic, group, "--to", "kafka") == rows, "a preview sets nothing"
    with member(changing, topic, group) as joined:
        until(joined.has_joined, "the member has joined", READ_S_MAX)
        told = positions(changing, topic, group, "--to", "kafka", "--apply", code=4)
        assert "it has members" in told and "stop its consumers first" in told
    done = changing.penstock.call("migrate", "positions", topic, "--group", group, "--to", "kafka", "--apply")
    assert done.returncode == 0, done.stderr
    told = done.stderr.decode()
    assert "2 dead letters of returned" in told and "1 delayed messages of returned" in told
    assert "2 messages are withheld by RETRY" in told
    committed = changing.admin.group_offsets(group)
    assert {each.number: at for each, at in committed.items()} == {each["queue"]: each["kafka"] for each in rows}
    left = {*sent} - {*handled}
    dead = 2
    with member(changing, topic, group) as joined:
        got = joined.take(len(left) - dead + sum(each["again"] for each in rows))
    assert len({*left} - {*got}) <= dead, "only the dead letters stay behind"
    assert len(got) == len({*got})


def delay(changing, topic):
    with closing(Sender(changing.penstock, changing.application)) as sender:
        message = Message(topic=topic, id="later", body=b"b", delay_ms=3_600_000)
        assert sender.send(message)[0].code == Code.OK


def test_a_group_of_a_double_write_moves_to_the_engine_and_back_by_ids(changing):
    topic, group = "paired", "readers"
    changing.plan(topic, "double_write", partitions=2)
    sent = changing.send(topic, "before", 20)
    changing.way(topic, "verify")
    sent += changing.send(topic, "both", 40)
    with member(changing, topic, group) as joined:
        handled = [*joined.take(35)]
    rows = positions(changing, topic, group)
    assert {each["checked"] for each in rows} == {"by id"} and {each["again"] for each in rows} == {0}
    positions(changing, topic, group, "--apply")
    handled += pulled(changing, topic, group, 10)
    changing.way(topic, "cut", "soak")
    sent += changing.send(topic, "engine", 20)
    handled += pulled(changing, topic, group, 10)
    assert len({*handled}) == len(handled), "nothing is read twice with one proxy"
    changing.way(topic, "rollback")
    rows = positions(changing, topic, group, "--to", "kafka", "--apply")
    assert {each["checked"] for each in rows} == {"by id"}
    with member(changing, topic, group) as joined:
        handled += joined.take(len(sent) - len(handled) + sum(each["again"] for each in rows))
    assert {*handled} == {*sent}


def test_a_position_among_what_was_written_to_both_sides_is_found_after_an_abort_too(changing):
    topic, group = "aborted", "late-readers"
    changing.plan(topic, "double_write")
    sent = changing.send(topic, "before", 10)
    changing.way(topic, "verify")
    sent += changing.send(topic, "both", 30)
    with member(changing, topic, group) as joined:
        joined.take(25)
    changing.way(topic, "abort")
    sent += changing.send(topic, "copied", 10)
    changing.wait_same(topic, sent)
    (row,) = positions(changing, topic, group, "--apply")
    assert (row["kafka"], row["engine"], row["end"]) == (25, 25, 50)
    assert pulled(changing, topic, group, 25) == sent[25:]


def test_a_group_that_nobody_has_named_is_found_by_asking_kafka_and_stops_the_cut(changing):
    topic, group = "shared", "forgotten"
    assert changing.admin.create_topics({topic: NewKafkaTopic(2, 1)}) == {}
    until(lambda: changing.admin.topics([topic]), "the topic", READ_S_MAX)
    path = changing.folder / f"{topic}.yaml"
    path.write_text(PLAN.format(topic=topic, recipe="double_read", order="strict") + "groups: [planned]\n")
    with member(changing, topic, group) as joined:
        until(joined.has_joined, "the member has joined", READ_S_MAX)
        told = changing.migrate("plan", str(path), "--accept", "lone-replica")
        assert f"not in the plan: group {group} reads {topic} in Kafka (is Stable)" in told.replace("STABLE", "Stable")
        changing.way(topic, "start", "verify")
        changing.send(topic, "before", 5)
        joined.take(5)
    shown = changing.penstock.run("migrate", "status", topic)["groups"]
    assert f"not in the plan: group {group} reads {topic} in Kafka (has positions, and no members now)" in shown
    told = changing.migrate("cut", topic, code=4)
    assert f"group {group} reads {topic} in Kafka" in told and "--accept groups" in told
    assert "fence: 1 topics" not in told
    told = changing.penstock.call("migrate", "positions", topic, "--group", group).stderr.decode()
    assert "name it in the plan before start, or let it read on in Kafka" in told
    changing.admin.delete_groups([group])
    assert changing.penstock.run("migrate", "status", topic)["groups"].startswith("all that read the topics")
    changing.admin.set_group_offsets(group, {Partition(topic, 0): 0})
    changing.migrate("cut", topic, "--accept", "groups")
