"""Contents of the bytes that a start reports as unread: only they are excepted from what was promised."""

from collections.abc import Iterator
from typing import NamedTuple

from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    CONTROL_TOPIC_ID,
    KIND_COUNTERS,
    KIND_PROGRESS,
    KIND_TOPIC,
    padded,
    parse_topic,
    split_records,
)

VIEW_KINDS = (KIND_TOPIC, KIND_PROGRESS, KIND_COUNTERS)


class Unread(NamedTuple):
    """Parts of some lost bytes.

    Attributes:
        topics: names of topics of which a record is lost.
        is_view_only: only records of topics, progress and counters are lost: no message, and nothing of a delayed one.
    """

    topics: set[str]
    is_view_only: bool


def parse_unread(lost: list[bytes]) -> Unread:
    """Parse the bytes of each damage. They are those of the disk, so batches in them are whole."""
    topics, is_view_only = set(), True
    for data in lost:
        rest = len(data)
        for kind, batch in _control_batches(data):
            rest -= padded(len(batch))
            if kind == KIND_TOPIC:
                topics.update(
                    parse_topic(record)[1].partition("@")[0] for record in split_records(batch[BATCH_HEADER_SIZE:])
                )
        is_view_only = is_view_only and rest <= 0
    return Unread(topics, is_view_only)


def _control_batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(data) - BATCH_HEADER_SIZE, 8):
        _, size, magic, kind, _, _, topic_id, queue, *_ = BATCH_HEADER.unpack_from(data, at)
        is_record = topic_id == CONTROL_TOPIC_ID and queue == kind and kind in VIEW_KINDS
        if magic == BATCH_MAGIC and is_record and size <= len(data) - at:
            yield kind, data[at : at + size]
