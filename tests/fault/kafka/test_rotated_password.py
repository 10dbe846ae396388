"""A user's SCRAM password is changed on the broker and in its file, at the same path: all connections of a bridge follow."""

from contextlib import closing

import pytest

from common.config import open_store
from common.contract import Code, Message
from common.kafka.base import END, ClusterAdmin, NewKafkaTopic, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.errors import KafkaFault
from common.kafka.records import OutgoingRecords, Partition
from common.shared_reads import hidden_topic
from tests.e2e.kafka.home import Sender
from tests.fault.kafka.test_outages import Load, stored_ok
from tests.fault.kafka.test_revoked_login import CLUSTERS, SEEN_S_MAX, TwoDrivers
from tests.fault.kafka.test_shapes_and_positions import Changing
from tests.services import require
from tests.services.kafka import SCRAM_PASSWORD, SCRAM_USER
from tests.waiting import until

pytestmark = pytest.mark.slow
GROUP = "readers"
OUT, WRITTEN = ({f"{kind}-{name}": name for name in CLUSTERS} for kind in ("out", "written"))
"""Topics of the engine that are copied to Kafka, and those that proxies write there, too, with their clusters; SHARED are
those that a group reads on both sides."""
SHARED = {f"both-{name}": name for name in CLUSTERS}


class RotatedLogin(TwoDrivers):
    """As TwoDrivers, with copies to Kafka and groups that read both sides beside sends and copies from Kafka."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.password, self.plain = folder / "password", KafkaConnection("main", (self.brokers.bootstrap,))
        topics = [*OUT, *SHARED, *WRITTEN]
        with closing(open_driver().admin(self.plain)) as admin:
            assert admin.create_topics(dict.fromkeys(topics, NewKafkaTopic(1, 1))) == {}
            until(lambda: len(admin.topics(topics)) == len(topics), "the topics", 60.0)
        for topic in (*OUT, *SHARED):
            self.penstock.run("topic", "create", topic, "--queues", "1")
        self.penstock.run("group", "create", GROUP, "--start", "latest")
        with closing(open_store((self.penstock.data / "config").as_uri())) as store:
            for topic, cluster in OUT.items():
                store.put("copy_out", topic, {"cluster": cluster}, 0)
            for topic, cluster in WRITTEN.items():
                sides = {"queues": 1, "durability": "replicated", "secondary": f"kafka:{cluster}", "id_window_ms": 0}
                store.put("topic", topic, sides, 0)
            for topic, cluster in SHARED.items():
                entry = {"group": GROUP, "topic": topic, "cluster": cluster, "queues": 1, "made_ms": 1}
                store.put("shared_read", hidden_topic(GROUP, topic), entry, 0)

    def rotate(self, password: str) -> None:
        self.alter(["--add-config", f"SCRAM-SHA-256=[password={password}]"])
        self.password.write_text(f"{password}\n")

    def logged_in(self) -> ClusterAdmin:
        """A client with the password as it is now."""
        login = KafkaConnection(
            "main", (self.brokers.sasl_bootstrap,), "SASL_PLAINTEXT", "SCRAM-SHA-256", SCRAM_USER,
            self.password.read_text().rstrip(),
        )  # fmt: skip
        return open_driver("confluent-kafka").admin(login)

    def ids(self, topic):
        """All of them, page by page."""
        found: list[str] = []
        while True:
            line = ("-t", topic, "--queue", "0", "--offset", str(len(found)), "--limit", "2000")
            page = [each["id"] for each in self.penstock.run("message", "browse", *line)]
            found += page
            if not page:
                return found

    def kafka_end(self, topic) -> int:
        with closing(open_driver().admin(self.plain)) as admin:
            return admin.offsets([Partition(topic, 0)], END)[Partition(topic, 0)]

    def produce(self, topic, name) -> None:
        """Write a record over the listener without a login."""
        record = OutgoingRecords([topic], [0], [1], [b"k"], [b"x"], [[("penstock-id", name.encode())]])
        producer = open_driver().producer(self.plain, ProducerOptions())
        producer.partitions(topic)
        producer.produce(record, lambda results: None)
        producer.close(20.0)

    def copies_all(self, name) -> None:
        """Each copy brings a message that comes now to its other side, once."""
        with closing(Sender(self.penstock, self.application)) as sender:
            before = {topic: self.kafka_end(topic) for topic in (*OUT, *WRITTEN)}
            for topic in before:
                assert sender.send(Message(topic=topic, id=name, body=b"x"))[0].code == Code.OK
        for topic in SHARED:
            self.produce(topic, name)
            hidden = hidden_topic(GROUP, topic)
            until(lambda hidden=hidden: self.ids(hidden).count(name) == 1, f"{name} in {hidden}", SEEN_S_MAX)
        for topic, end in before.items():
            until(lambda topic=topic, end=end: self.kafka_end(topic) > end, f"{name} in Kafka's {topic}", SEEN_S_MAX)

    notes = Changing.notes

    def is_member(self, topic) -> bool:
        """Whether the group has a position in the topic: what is produced from then on is read."""
        with closing(open_driver().admin(self.plain)) as admin:
            return bool(admin.group_offsets(GROUP).get(Partition(topic, 0), -1) >= 0)


def is_out(client) -> bool:
    """Whether the broker has ended the login of a client."""
    try:
        client.topics([*OUT])
    except KafkaFault:
        return True
    return False


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    require(set(installed()) == set(DRIVERS), f"pip install {' '.join(DRIVERS)}")
    made = RotatedLogin(tmp_path_factory.mktemp("rotated"))
    for topic in SHARED:
        until(lambda topic=topic: made.is_member(topic), f"{topic}: the group's position", SEEN_S_MAX)
    yield made
    made.close()


def test_a_password_that_is_changed_in_its_file_is_followed_by_every_connection_of_the_bridge(both):
    bridge = both.penstock.pids["kafka_bridge"]
    both.copies_all("before")
    for number in (1, 2):
        loads = {topic: Load(both, topic, start=number * 1_000_000) for topic in CLUSTERS}
        for load in loads.values():
            load.wait_for(Code.OK, 20)
        with closing(both.logged_in()) as former:
            both.rotate(f"{SCRAM_PASSWORD} {number}")
            until(lambda former=former: is_out(former), "logins by the former password to end", SEEN_S_MAX)
        for load in loads.values():
            load.wait_for(Code.OK, 50)
        stored = {topic: stored_ok(load.stop()) for topic, load in loads.items()}
        both.copies_all(f"after {number}")
        for topic, wanted in stored.items():
            until(lambda topic=topic, wanted=wanted: wanted <= {*both.ids(topic)}, f"{topic}: copy", SEEN_S_MAX)
    assert both.penstock.pids["kafka_bridge"] == bridge, "without a restart"


def test_a_login_that_is_revoked_is_told_by_every_copy_and_followed_by_all_once_it_is_given_back(both):
    """The shared login is that of the last rotation."""
    both.copies_all("before the end")
    with closing(both.logged_in()) as former:
        both.revoke()
        until(lambda: is_out(former), "logins to end", SEEN_S_MAX)
    sent = {topic: both.kafka_end(topic) for topic in (*OUT, *WRITTEN)}
    with closing(Sender(both.penstock, both.application)) as sender:
        for topic in sent:
            assert sender.send(Message(topic=topic, id="meanwhile", body=b"x"))[0].code == Code.OK
    for topic in SHARED:
        both.produce(topic, "meanwhile")
    for topic in (*OUT, *SHARED):
        until(lambda topic=topic: topic in both.notes("kafka_bridge"), f"/readyz tells of {topic}", SEEN_S_MAX)
    for topic in WRITTEN:
        until(lambda topic=topic: topic in both.notes("producer_proxy"), f"/readyz tells of {topic}", SEEN_S_MAX)
    both.rotate(both.password.read_text().rstrip())
    for topic in SHARED:
        hidden = hidden_topic(GROUP, topic)
        until(lambda hidden=hidden: both.ids(hidden).count("meanwhile") == 1, f"the copy of {hidden}", SEEN_S_MAX)
    for topic, end in sent.items():
        until(lambda topic=topic, end=end: both.kafka_end(topic) > end, f"the copy of {topic}", SEEN_S_MAX)
    both.copies_all("after the end")
