"""The last record that was copied into a queue: whether Kafka still has it where it was copied from.

Ends alone do not tell that Kafka has lost records and has got others at their offsets since: an older copy of its data, or
an unclean election.
"""

from collections.abc import Mapping
from typing import NamedTuple

from common.kafka.records import NO_TIMESTAMP, Partition, Records
from common.quoting import quoted
from engine.client.copied import CopyLink
from engine.client.single_reads import messages_at
from engine.link.copy import SourceState
from engine.link.record import StoredRecord
from kafka_bridge.copy_in.messages import TIME_PROPERTY, RecordPlace, message_id, message_key
from kafka_bridge.mapping import fields_of

_BODY, _KEY, _ID = 2, 3, 6


class LastCopied(NamedTuple):
    """What the engine's copy tells of the record.

    Attributes:
        offset: in Kafka.
        shown: its id, as clients see it.
    """

    offset: int
    shown: bytes
    key: bytes | None
    body: bytes
    time_ms: int

    def is_at(self, records: Records, index: int, topic_id: bytes) -> bool:
        """Whether a fetched record is the one that was copied."""
        if records.offsets[index] != self.offset:
            return False
        place = RecordPlace(topic_id, records.partition.number, self.offset)
        found = (
            message_id(records.headers[index], place), message_key(records.keys[index]), records.values[index] or b"",
            max(records.timestamps[index], NO_TIMESTAMP),
        )  # fmt: skip
        return found == self[1:]

    def loss(self, topic: str, partition: Partition, is_moved: bool = False) -> str:
        """The sentence for a record that Kafka has not.

        Args:
            is_moved: the engine is the home now, and what lies below the cut is not copied back.
        """
        lacks = ", and what Kafka lacks is written by `penstock migrate verify PLAN --all --repair`" if is_moved else ""
        return (
            f"kafka topic {quoted(partition.topic)} partition {partition.number} offset {self.offset:,}: it has not the record "
            "that was copied from there: Kafka has lost records, and others have their offsets: find the first of those, "
            "by `penstock migrate verify PLAN --all` where a plan moves the topic, and copy from there by "
            f"`penstock kafka accept {topic} --partition {partition.number} --start OFFSET --reason TEXT`{lacks}"
        )


def last_copied(link: CopyLink, stored: str, states: Mapping[int, SourceState]) -> dict[int, LastCopied]:
    """By queue, the last record that was copied since its source was accepted, in one request.

    Left out: queues without one, and those whose copy of it retention has deleted in the engine.

    Raises AdminError, OSError, LinkError.
    """
    ends = {
        queue: state.end - 1
        for queue, state in states.items()
        if state.sources and state.end > max(state.sources, key=lambda each: each.number).first
    }
    found = messages_at(link, stored, ends)
    return {
        queue: _read(each.record)
        for queue, each in found.items()
        if each.record is not None and each.record.source_offset is not None
    }


def _read(record: StoredRecord) -> LastCopied:
    assert record.source_offset is not None
    texts, properties = fields_of(record.message)
    shown = record.assigned_id.hex().encode() if record.assigned_id else texts.get(_ID, b"")
    time = properties.get(TIME_PROPERTY.encode(), b"")
    time_ms = int(time) if time.isdigit() else NO_TIMESTAMP
    return LastCopied(record.source_offset, shown, texts.get(_KEY), texts.get(_BODY, b""), time_ms)
