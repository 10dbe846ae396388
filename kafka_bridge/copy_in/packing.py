"""Packs fetched Kafka records as the records of one copied batch. The reference of `_packing.pyx`.

A record costs no Python object beside those of the fetch in the native form; records that are not plain take the way
through `message_of` in both.
"""

from typing import NamedTuple

from common.kafka.copy_mark import is_copy_of
from common.kafka.records import Records
from engine.link.record import encode_copied_record
from kafka_bridge.copy_in.messages import ForeignRecordTooLarge, RecordPlace, message_of


class PackTarget(NamedTuple):
    """The queue that records are copied into, and the partition that they come from.

    Attributes:
        topic: name of the engine's topic.
        kafka_topic_id: 16 bytes.
        log_id, topic_id: of the engine that has the queue: records that were copied from there are skipped.
    """

    topic: bytes
    kafka_topic_id: bytes
    partition: int
    log_id: str
    topic_id: int


class PackedRecords(NamedTuple):
    """Records as they lie in a batch.

    Attributes:
        data: of all records.
        copied: number of records in `data`.
        following: index of the first record that is not packed.
        skipped: how many were left out because they come from the topic itself.
        fault: why the record at `following` cannot be packed; empty: the batch is full, or all are packed.
    """

    data: bytes
    copied: int
    following: int
    skipped: int
    fault: str = ""


def pack(records: Records, first: int, target: PackTarget, bytes_max: int) -> PackedRecords:
    """Pack records from index `first` on until `bytes_max` is reached; the last one may pass it."""
    packed: list[bytes] = []
    size = skipped = 0
    for index in range(first, len(records.offsets)):
        if size >= bytes_max:
            return PackedRecords(b"".join(packed), len(packed), index, skipped)
        try:
            found = pack_one(records, index, target)
        except ForeignRecordTooLarge as fault:
            return PackedRecords(b"".join(packed), len(packed), index, skipped, str(fault))
        if found is None:
            skipped += 1
        else:
            packed.append(found)
            size += len(found)
    return PackedRecords(b"".join(packed), len(packed), len(records.offsets), skipped)


def pack_one(records: Records, index: int, target: PackTarget) -> bytes | None:
    """One record; None: it was copied from the topic itself. Raises ForeignRecordTooLarge."""
    key, value, headers = records.keys[index], records.values[index], records.headers[index]
    if headers and is_copy_of(target.log_id, target.topic_id, headers, key, value):
        return None
    offset = records.offsets[index]
    place = RecordPlace(target.kafka_topic_id, target.partition, offset)
    encoded, assigned_id = message_of(target.topic, place, records.timestamps[index], key, value, headers)
    return encode_copied_record(encoded, offset, assigned_id or b"")
