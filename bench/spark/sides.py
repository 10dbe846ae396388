"""The two sides of the comparison: options and columns by which Spark reads and writes each."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.instance import APPLIED_TIMEOUT_S, own
from bench.peers.kafka import one_broker
from common.admin import applications, topics
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.applying import wait_applied

QUEUES = 4


@dataclass(frozen=True)
class SparkSide:
    """One system.

    Attributes:
        form: the format's name.
        topic_options: the option with the topic, of a read and of a write.
        limit: the option that limits the messages per trigger.
        sent: expressions that make a row of the sink of columns `key` and `body`.
        wanted: expressions that read topic, queue, offset, key, body and time; `more` are options of the read for them.
    """

    form: str
    read: dict[str, str]
    write: dict[str, str]
    topic_options: tuple[str, str]
    limit: str
    sent: tuple[str, ...]
    wanted: tuple[str, ...]
    pids: dict[str, int] = field(default_factory=dict)

    def reading(self, topic: str) -> dict[str, str]:
        return {**self.read, self.topic_options[0]: topic}

    def writing(self, topic: str) -> dict[str, str]:
        return {**self.write, self.topic_options[1]: topic}


@contextmanager
def penstock_side(names: Sequence[str], queues: int = QUEUES) -> Iterator[SparkSide]:
    """A `penstock up` with topics of these names, whose sends are answered from memory, as Kafka's are."""
    with own("--no-console") as instance, tempfile.TemporaryDirectory(prefix="penstock-bench-spark-") as folder:
        with closing(open_store(instance.facts["config"])) as store:
            admin = Administrator(store, "bench")
            topics.create(admin, list(names), topics.TopicSettings(queues=queues, durability="memory"))
            key = applications.create(admin, "spark", applications.Grants(send=("*",), pull=("*",)))
            wait_applied(store, store.version(), APPLIED_TIMEOUT_S)
        credential = Path(folder) / "spark.json"
        credential.touch(mode=0o600)
        credential.write_text(json.dumps({"app": key.app, "key_id": key.key_id, "secret": key.secret}))
        common = {"credential": str(credential)}
        wanted = ("topic", "queue", "offset", "key", "body", "stored_at")
        yield SparkSide(
            "penstock",
            {**common, "endpoint": _address(instance.facts, "consumer_proxy"), "columns": ",".join(wanted)},
            {**common, "endpoint": _address(instance.facts, "producer_proxy")},
            ("topics", "topic"), "maxMessagesPerTrigger", ("key", "body"), wanted, instance.pids,
        )  # fmt: skip


@contextmanager
def kafka_side() -> Iterator[SparkSide]:
    """One Kafka broker with its documented configuration; a topic is made by its first message."""
    with one_broker(f"num.partitions={QUEUES}\n") as broker:
        address = {"kafka.bootstrap.servers": broker.address}
        # Answered from memory, too. With idempotence, the client was seen to repeat sequence number 0 without end.
        settings = {"kafka.acks": "1", "kafka.enable.idempotence": "false", "kafka.delivery.timeout.ms": "900000"}
        yield SparkSide(
            "kafka", address, {**address, **settings}, ("subscribe", "topic"), "maxOffsetsPerTrigger",
            ("key", "body AS value"), ("topic", "partition", "offset", "key", "value", "timestamp"),
            {"broker": broker.pid},
        )  # fmt: skip


def _address(facts: dict, name: str) -> str:
    return f"{facts[name]['host']}:{facts[name]['port']}"
