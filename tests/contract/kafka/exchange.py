"""Sends records through a driver and reads them again."""

import threading
import time

from common.kafka.base import GroupListener, GroupOptions, KafkaDriver, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.records import OutgoingRecords, Partition, ProduceResults

RESULTS_DEADLINE_S = 60.0
READ_DEADLINE_S = 30.0
NOW = 1_700_000_000_000


def outgoing(topic, *rows):
    """Records of one topic, each (partition, timestamp, key, value, headers); what is left out has a usual value."""
    usual = (0, NOW, b"key", b"value", [])
    filled = [(*row, *usual[len(row) :]) for row in rows]
    columns = [list(column) for column in zip(*filled, strict=True)] or [[], [], [], [], []]
    return OutgoingRecords([topic] * len(rows), *columns)


class Sent:
    """A batch on its way."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.calls: list[ProduceResults] = []

    def __call__(self, results: ProduceResults) -> None:
        self.calls.append(results)
        self._event.set()

    @property
    def is_done(self) -> bool:
        return self._event.is_set()

    def results(self) -> ProduceResults:
        assert self._event.wait(RESULTS_DEADLINE_S), "no results"
        return self.calls[0]


class Exchange:
    """Opens producers and readers of one driver, and closes them at the end."""

    def __init__(self, driver: KafkaDriver, connection: KafkaConnection) -> None:
        self.driver, self.connection = driver, connection
        self._opened: list = []
        self._usual = None

    def producer(self, **options):
        made = self.driver.producer(self.connection, ProducerOptions(**options))
        self._opened.append(lambda: made.close(1.0))
        return made

    def reader(self, positions=None, **options):
        made = self.driver.reader(self.connection, ReaderOptions(**options))
        self._opened.append(made.close)
        if positions:
            made.assign(positions)
        return made

    def group_reader(self, group, *topics, listener=None, **options):
        reading = ReaderOptions(records_max=1_000)
        made = self.driver.group_reader(
            self.connection, GroupOptions(group, topics, reading, **options), listener or GroupListener()
        )
        self._opened.append(made.close)
        return made

    def admin(self):
        made = self.driver.admin(self.connection)
        self._opened.append(made.close)
        return made

    def send(self, topic, *rows, producer=None) -> ProduceResults:
        """Produce and return the results."""
        if producer is None:
            producer = self._usual = self._usual or self.producer()
        sent = Sent()
        producer.produce(outgoing(topic, *rows), sent)
        return sent.results()

    def read(self, topic, count, partition=0, at=0, **options):
        """`count` records from an offset as (offset, timestamp, key, value, headers)."""
        reader = self.reader({Partition(topic, partition): at}, **options)
        return records_of(reader, count)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for close in reversed(self._opened):
            close()


def records_of(reader, count):
    """Poll until there are so many records, and return them as rows; of several partitions, in the order of arrival."""
    rows: list[tuple] = []
    deadline = time.monotonic() + READ_DEADLINE_S
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} records: {rows}"
        for records in reader.poll(0.5):
            rows += rows_of(records)
    return rows


def rows_of(records):
    headers = [list(each) for each in records.headers]
    return [*zip(records.offsets, records.timestamps, records.keys, records.values, headers, strict=True)]
