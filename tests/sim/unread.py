"""Contents of the bytes that a start reports as unread: only they are excepted from what was promised."""

from collections.abc import Iterator
from typing import NamedTuple

from engine.delivery.progress import split_key
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    CONTROL_TOPIC_ID,
    KIND_COUNTERS,
    KIND_PROGRESS,
    KIND_TOPIC,
    padded,
    parse_progress,
    parse_topic,
    split_records,
)

VIEW_KINDS = (KIND_TOPIC, KIND_PROGRESS, KIND_COUNTERS)


class Unread(NamedTuple):
    """Parts of some lost bytes.

    Attributes:
        topics: names of topics of which a record is lost.
        progress: (group, topic id, queue) of lost progress: the group may be where it was before.
        is_view_only: only records of topics, progress and counters are lost: no message, and nothing of a delayed one.
    """

    topics: set[str]
    progress: set[tuple[str, int, int]]
    is_view_only: bool


def parse_unread(lost: list[bytes]) -> Unread:
    """Parse the bytes of each damage. They are those of the disk, so batches in them are whole."""
    topics: set[str] = set()
    progress: set[tuple[str, int, int]] = set()
    is_view_only = True
    for data in lost:
        rest = len(data)
        for kind, batch in _control_batches(data):
            rest -= padded(len(batch))
            for record in split_records(batch[BATCH_HEADER_SIZE:]):
                if kind == KIND_TOPIC:
                    topics.add(parse_topic(record)[1].partition("@")[0])
                elif kind == KIND_PROGRESS and (key := split_key(parse_progress(record)[0])):
                    progress.add(key)
        is_view_only = is_view_only and rest <= 0
    return Unread(topics, progress, is_view_only)


def _control_batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(data) - BATCH_HEADER_SIZE, 8):
        _, size, magic, kind, _, _, topic_id, queue, *_ = BATCH_HEADER.unpack_from(data, at)
        is_record = topic_id == CONTROL_TOPIC_ID and queue == kind and kind in VIEW_KINDS
        if magic == BATCH_MAGIC and is_record and size <= len(data) - at:
            yield kind, data[at : at + size]
