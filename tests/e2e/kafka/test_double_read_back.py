"""Ways back of a double read end to end: a roll back after the cut, and an abort before it, with a real broker.

One group with an order; its consumer is one of the proxy. What is counted is what it has got, by the number in the body.
"""

from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords
from common.keyhash import queue_of
from tests.e2e.kafka.home import PARTITIONS, Home, Puller
from tests.e2e.kafka.test_double_read import KEYS, WAIT_S, PullingMember, migrate
from tests.waiting import until

GROUP = "workers"
PLAN = """\
name: {name}
recipe: double_read
cluster: main
topics: [{name}]
groups: [workers]
gates: {{error_rate: 1}}
limits: {{soak_hours: 0}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("back"), "auto", ["back", "left"]).start()
    made.penstock.run("group", "create", GROUP, "--order", "key")
    for name in ("back", "left"):
        file = made.penstock.data / f"{name}.yaml"
        file.write_text(PLAN.format(name=name))
        migrate(made, "plan", str(file), "--accept", "lone-replica")
    yield made
    made.close()


def produce(home, topic, numbers):
    """Records by a plain producer of Kafka, each key in its own order."""
    producer, codes = open_driver().producer(home.connection, ProducerOptions()), []
    try:
        producer.partitions(topic)
        keys = [b"k%d" % (number % KEYS) for number in numbers]
        partitions = [queue_of(each, PARTITIONS) for each in keys]
        columns = [topic] * len(keys), partitions, [1] * len(keys), keys, [b"%d" % number for number in numbers]
        producer.produce(OutgoingRecords(*columns, [()] * len(keys)), lambda results: codes.extend(results.codes))
        assert producer.flush(WAIT_S) and set(codes) == {Code.OK}
    finally:
        producer.close(5)


def send(home, topic, numbers):
    """Messages through the proxy, sent again while it answers FENCED or has not applied a change."""
    with closing(home.sender()) as sender:
        for number in numbers:
            message = Message(topic=topic, key=f"k{number % KEYS}", body=b"%d" % number, id=f"m{number}")
            until(lambda message=message: sender.send(message)[0].code == Code.OK, f"message {number}", WAIT_S)


def home_of(home, topic):
    return home.penstock.run("topic", "show", topic).get("home", "engine")


def assert_each_once_in_order(numbers, count):
    assert sorted(numbers) == [*range(count)], "each message once"
    for key in range(KEYS):
        found = [number for number in numbers if number % KEYS == key]
        assert found == sorted(found), f"order of key {key}"


def test_a_double_read_that_is_rolled_back_and_cut_again_delivers_each_message_once_and_in_order(home):
    produce(home, "back", range(40))
    migrate(home, "start", "back")
    member = PullingMember(home, GROUP, "back")

    def has(count):
        until(lambda: len({*member.numbers()}) >= count, f"{count} messages at the consumer", WAIT_S)

    send(home, "back", range(40, 60))
    has(60)
    for command in ("verify", "cut"):
        migrate(home, command, "back")
    send(home, "back", range(60, 100))
    assert home_of(home, "back") == "engine"
    has(100)
    assert migrate(home, "rollback", "back")["step"] == "copying"
    assert home_of(home, "back") == "kafka:main"
    send(home, "back", range(100, 140))
    has(140)
    assert {source for source, number in member.found if number >= 100} == {"kafka:main"}, (
        "new messages go to Kafka again"
    )
    for command in ("verify", "cut"):
        migrate(home, command, "back")
    send(home, "back", range(140, 160))
    has(160)
    migrate(home, "soak", "back")
    assert migrate(home, "retire", "back")["step"] == "retired"
    member.stop()
    assert_each_once_in_order(member.numbers(), 160)


def test_an_aborted_double_read_has_delivered_each_message_once_and_leaves_the_group_its_place_in_kafka(home):
    produce(home, "left", range(40))
    migrate(home, "start", "left")
    member = PullingMember(home, GROUP, "left")
    send(home, "left", range(40, 60))
    until(lambda: len({*member.numbers()}) >= 60, "60 messages at the consumer", WAIT_S)
    assert migrate(home, "abort", "left")["step"] == "aborted"
    member.stop()
    assert_each_once_in_order(member.numbers(), 60)
    with closing(open_driver().admin(home.connection)) as admin:
        committed = {each.number: at for each, at in admin.group_offsets(GROUP).items() if each.topic == "left"}
    assert sum(committed.values()) == 60, "its consumers on Kafka go on behind what was read here"
    assert home_of(home, "left") == "kafka:main"
    produce(home, "left", [60])  # from here on the topic is copied for all groups
    with closing(Puller(home, GROUP)) as puller:
        assert [each.message.body for each in puller.take("left", 1)] == [b"60"], "nothing of before comes again"
