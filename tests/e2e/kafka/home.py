"""A Penstock with a Kafka cluster as the home of topics, for tests: the parts that its tests share."""

from contextlib import closing

from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyFramedTransportFactory

from common import contract
from common.clock import SystemClock
from common.contract import Credential, SendRequest
from common.credential import mint
from common.kafka.base import NewKafkaTopic, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import Partition
from tests.e2e.running import RunningPenstock
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PARTITIONS = 4
READ_S_MAX = 60.0


class Sender:
    """A stock Thrift client of the producer proxy, with one connection."""

    def __init__(self, penstock, application) -> None:
        self._client = make_client(
            contract.Producer, *penstock.producer, proto_factory=TCyBinaryProtocolFactory(),
            trans_factory=TCyFramedTransportFactory(), timeout=30_000,
        )  # fmt: skip
        self._application = application

    def send(self, *messages, timeout_ms=5_000):
        credential = Credential(*mint(*self._application, SystemClock().now_ms()))
        request = SendRequest(credential=credential, messages=list(messages), timeout_ms=timeout_ms)
        return self._client.send(request).results

    def close(self) -> None:
        self._client.close()


class Home:
    """A broker with these topics, a Penstock with the cluster `main`, and an application that may do everything.

    Args:
        starts_before: the Penstock is started before the cluster is added, by the test.
    """

    def __init__(self, folder, driver, topics, starts_before=False) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        with closing(open_driver().admin(self.connection)) as admin:
            settings = NewKafkaTopic(PARTITIONS, 1)
            assert admin.create_topics(dict.fromkeys(topics, settings)) == {}
            until(lambda: len(admin.topics(topics)) == len(topics), "the topics", 30.0)
        self.penstock = RunningPenstock(folder / "data")
        # Without a running Penstock: the configuration is a directory.
        (folder / "data" / "config").mkdir(parents=True)
        self.driver = driver
        if not starts_before:
            self.add_cluster()

    def add_cluster(self) -> None:
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap, "--driver", self.driver)

    def start(self) -> "Home":
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"], dead_letters=["*"])
        return self

    def create(self, name, *more):
        return self.penstock.run("topic", "create", name, "--home", "kafka:main", "--accept", "lone-replica", *more)

    def sender(self) -> Sender:
        return Sender(self.penstock, self.application)

    def records(self, topic, wanted):
        """All records of a topic as (partition, key, value, headers), once as many as `wanted` are there."""
        found = []
        with closing(open_driver().reader(self.connection, ReaderOptions())) as reader:
            reader.assign({Partition(topic, number): 0 for number in range(PARTITIONS)})

            def read():
                for each in reader.poll(0.2):
                    rows = zip(each.keys, each.values, each.headers, strict=True)
                    found.extend((each.partition.number, key, value, dict(headers)) for key, value, headers in rows)
                return len(found) >= wanted

            until(read, f"{wanted} records of {topic}", READ_S_MAX)
            reader.poll(0.5)  # what came beyond it
        return found

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


class Puller:
    """A stock Thrift client of the consumer proxy that acknowledges what it got with its next pull."""

    def __init__(self, home, group) -> None:
        self._client = make_client(
            contract.Consumer, *home.penstock.consumer, proto_factory=TCyBinaryProtocolFactory(),
            trans_factory=TCyFramedTransportFactory(), timeout=60_000,
        )  # fmt: skip
        self._application, self._group, self.acks = home.application, group, []

    def pull(self, *topics, wait_ms=500, max_messages=500):
        """One pull; its deliveries are acknowledged by the next one."""
        request = contract.PullRequest(
            credential=Credential(*mint(*self._application, SystemClock().now_ms())), group=self._group,
            topics=list(topics), max_messages=max_messages, wait_ms=wait_ms, acks=self.acks,
        )  # fmt: skip
        answer = self._client.pull(request)
        assert answer.code == 0, answer.error
        assert {each.code for each in answer.ack_results} <= {0}
        self.acks = [contract.Ack(receipt=each.receipt) for each in answer.deliveries]
        return answer.deliveries

    def verdict(self, verdict, delay_ms=None) -> None:
        """Give what the last pull got this verdict in place of DONE."""
        self.acks = [contract.Ack(receipt=each.receipt, verdict=verdict, delay_ms=delay_ms) for each in self.acks]

    def take(self, topic, wanted):
        """Deliveries, until there are `wanted`, and what comes within one more pull."""
        found = []

        def has_come():
            found.extend(self.pull(topic))
            return len(found) >= wanted

        until(has_come, f"{wanted} messages of {topic}", READ_S_MAX)
        return found + self.pull(topic)

    def close(self) -> None:
        self._client.close()
