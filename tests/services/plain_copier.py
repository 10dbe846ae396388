"""A copier from Kafka into the engine for tests: one thread over one link, exact by copied batches, without any mapping
but key, body and id.

It stands in for the bridge's copier where that one is not the matter of the test.
"""

import threading
from collections.abc import Mapping
from contextlib import closing

from common.config import open_store
from common.contract import Message, encode_struct
from common.kafka.base import ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import Partition, Records
from common.names import stored_name
from engine.client import copied
from engine.client.admin import AdminClient
from engine.link.append import FSYNC
from engine.link.batch import encode_copied_batch
from engine.link.codes import OK
from engine.link.copy import CopyPart, ForeignSource
from engine.link.operations import TOPIC
from engine.link.record import encode_copied_record
from engine.link.topic import encode_topics


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
                    if fetched.offsets:
                        source, state = states[fetched.partition]
                        batch = _batch(state.topic_id, state.number, fetched)
                        part = CopyPart(source, positions[fetched.partition], batch)
                        (result,) = copied.copy(link, FSYNC, [part])
                        assert result.code == OK, result
                        positions[fetched.partition] = result.next


def _batch(topic_id: int, number: int, fetched: Records) -> bytes:
    records = []
    for offset, key, value, headers in zip(fetched.offsets, fetched.keys, fetched.values, fetched.headers, strict=True):
        own_id = dict(headers).get("penstock-id")
        message = Message(
            topic=fetched.partition.topic, key=None if key is None else key.decode(), body=value,
            id=None if own_id is None else own_id.decode(),
        )  # fmt: skip
        assigned = b"" if own_id is not None else offset.to_bytes(16, "big")
        records.append(encode_copied_record(encode_struct(message), offset, assigned))
    return encode_copied_batch(topic_id, fetched.partition.number, number, records)
