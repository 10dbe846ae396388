"""The cost of a topic in disk, from what was asked for."""

from typing import NamedTuple

from console.asking.topic_wish import TopicWish

RECORD_BYTES = 100  # of a record beside the body: id, key, headers, its share of batch and indexes
DAY_H = 24


class DiskUse(NamedTuple):
    """Bytes per broker that keeps the topic; with replicas each of them keeps as much."""

    day_bytes: int
    kept_bytes: int


def disk_use(wish: TopicWish) -> DiskUse:
    """Bytes stored per day, and kept until retention deletes them."""
    day_bytes = wish.day_messages * (wish.body_bytes + RECORD_BYTES)
    return DiskUse(day_bytes, day_bytes * wish.retention_hours // DAY_H)
