"""Copiers between Kafka and the engine for tests: one thread and one link each, without any mapping but key, body and id.

They stand in for the bridge's copiers where those are not the matter of the test. Into the engine the copy is exact by
copied batches, to Kafka by transactions; what came from the other side is not copied back.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from common.config import open_store
from common.contract import Message, decode_struct, encode_struct
from common.kafka.base import KafkaProducer, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords, Partition, ProduceResults, Records
from common.names import stored_name
from engine.client import copied
from engine.client.admin import AdminClient
from engine.link.append import FSYNC
from engine.link.batch import encode_copied_batch
from engine.link.codes import OK
from engine.link.copy import CopyPart, ForeignSource
from engine.link.operations import READ, TOPIC
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import encode_copied_record, read_record
from engine.link.topic import encode_topics

COPY_HEADER = "penstock-copy"


class PlainCopier(threading.Thread):
    """Copies topics until it is stopped.

    Args:
        queues: number of partitions by topic; the topics have entries in the configuration.
    Attributes:
        fault: why it has ended; None: it has not.
    """

    def __init__(
        self, connection: KafkaConnection, engine: tuple[str, int], admin_key: bytes, config: str,
        queues: Mapping[str, int],
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._connection, self._engine, self._key = connection, engine, admin_key
        self._config, self._queues = config, queues
        self._stopping = threading.Event()
        self.fault: BaseException | None = None

    def stop(self) -> None:
        """End it; raises what it has died of."""
        self._stopping.set()
        self.join(30)
        if self.fault is not None:
            raise self.fault

    def run(self) -> None:
        try:
            with AdminClient(self._engine, self._key, timeout_s=30.0) as link:
                self._copy(link)
        except BaseException as fault:
            self.fault = fault

    def _copy(self, link: AdminClient) -> None:
        with closing(open_store(self._config)) as store:
            made = {name: store.get("topic", name).value.get("made_ms", 0) for name in self._queues}
        names = {name: stored_name(name, each) for name, each in made.items()}
        link.call(TOPIC, encode_topics([(names[name], count) for name, count in self._queues.items()]))
        states = {}
        for name, count in self._queues.items():
            for queue in range(count):
                source = ForeignSource(f"{self._connection.name}/{name}".encode(), queue)
                (state,) = copied.states(link, [(names[name], queue)])
                if not state.number:
                    state = copied.accept(link, names[name], queue, source, start=0, replaces=0, reason="a test")
                states[Partition(name, queue)] = (source, state)
        positions = {each: state.next for each, (_, state) in states.items()}
        with closing(open_driver().reader(self._connection, ReaderOptions())) as reader:
            reader.assign(positions)
            while not self._stopping.is_set():
                for fetched in reader.poll(0.05):
                    if any(COPY_HEADER not in dict(each) for each in fetched.headers):
                        source, state = states[fetched.partition]
                        batch = _batch(state.topic_id, state.number, fetched)
                        part = CopyPart(source, positions[fetched.partition], batch)
                        (result,) = copied.copy(link, FSYNC, [part])
                        assert result.code == OK, result
                        positions[fetched.partition] = result.next


class PlainReverseCopier(threading.Thread):
    """Copies what topics have received since their cut back to Kafka, until it is stopped; see PlainCopier."""

    def __init__(
        self, connection: KafkaConnection, engine: tuple[str, int], admin_key: bytes, config: str,
        topics: Sequence[str], group: str,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._connection, self._engine, self._key = connection, engine, admin_key
        self._config, self._topics, self._group = config, topics, group
        self._stopping = threading.Event()
        self.fault: BaseException | None = None

    def stop(self) -> None:
        """End it; raises what it has died of."""
        self._stopping.set()
        self.join(30)
        if self.fault is not None:
            raise self.fault

    def run(self) -> None:
        try:
            with AdminClient(self._engine, self._key, timeout_s=30.0) as link:
                self._copy(link)
        except BaseException as fault:
            self.fault = fault

    def _copy(self, link: AdminClient) -> None:
        with closing(open_store(self._config)) as store:
            values = {name: store.get("topic", name).value for name in self._topics}
        names = {name: stored_name(name, each.get("made_ms", 0)) for name, each in values.items()}
        positions = {
            Partition(name, queue): first
            for name, each in values.items()
            for queue, first in enumerate(each["cut"]["engine_firsts"])
        }
        producer = open_driver().producer(self._connection, ProducerOptions(transactional_id=self._group))
        with closing(open_driver().admin(self._connection)) as admin:
            positions |= admin.group_offsets(self._group)
        for name in self._topics:
            producer.partitions(name)
        try:
            while not self._stopping.is_set():
                for place, at in positions.items():
                    records = list(messages_of(link, names[place.topic], place.number, at))
                    if records:
                        positions[place] = at + len(records)
                        own = [message for message, source_offset in records if source_offset is None]
                        _write(producer, place, own, positions[place], self._group)
                self._stopping.wait(0.05)  # a pace, not a wait for anything
        finally:
            producer.close(10.0)


def _write(producer: KafkaProducer, place: Partition, messages: list[Message], following: int, group: str) -> None:
    results: list[ProduceResults] = []
    count = len(messages)
    headers = [[("penstock-id", (each.id or "").encode()), (COPY_HEADER, b"a test")] for each in messages]
    producer.begin()
    if messages:
        keys = [None if each.key is None else each.key.encode() for each in messages]
        columns = [place.topic] * count, [place.number] * count, [-1] * count, keys
        producer.produce(OutgoingRecords(*columns, [each.body or b"" for each in messages], headers), results.append)
    producer.commit({place: following}, group)


def messages_of(link: AdminClient, name: str, queue: int, offset: int = 0) -> Iterator[tuple[Message, int | None]]:
    """The messages of a queue from an offset on, each with its source offset if it was copied. One page."""
    question = ReadQuestion([ReadPosition(name, queue, offset=offset)], 1000, 1 << 20)
    code, payload = link.call(READ, question.encode())
    assert code == OK, payload
    for piece in ReadAnswer.decode(payload).pieces():
        at = 0
        for _ in range(piece.count):
            record, at = read_record(piece.records, at)
            yield decode_struct(Message, record.message), record.source_offset


def _batch(topic_id: int, number: int, fetched: Records) -> bytes:
    records = []
    for offset, key, value, headers in zip(fetched.offsets, fetched.keys, fetched.values, fetched.headers, strict=True):
        if COPY_HEADER in dict(headers):
            continue
        own_id = dict(headers).get("penstock-id")
        message = Message(
            topic=fetched.partition.topic, key=None if key is None else key.decode(), body=value,
            id=None if own_id is None else own_id.decode(),
        )  # fmt: skip
        assigned = b"" if own_id is not None else offset.to_bytes(16, "big")
        records.append(encode_copied_record(encode_struct(message), offset, assigned))
    return encode_copied_batch(topic_id, fetched.partition.number, number, records)
