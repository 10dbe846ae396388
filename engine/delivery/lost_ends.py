"""Ends of queues after damage that nothing explains: raised, so that no group skips new messages.

A batch with a destroyed header may have been its queue's last one. The progress of a group may lie above the end that
is left then: a new message would get an offset that the group has passed, and the group would never see it.
"""

import logging
from typing import Protocol

from engine.delivery import progress
from engine.log.port import ProgressLog, TopicLog

log = logging.getLogger(__name__)


class RaisableLog(ProgressLog, TopicLog, Protocol):
    """The log, after a start that may have found such damage."""

    headers_lost: bool

    def raise_end(self, topic_id: int, queue: int, next_offset: int) -> bool:
        """Continue the queue at that offset at least; whether its end was below."""

    def put_ends_raised(self) -> None:
        """Note that no end has to be raised any more. Until this is durable each start has `headers_lost`."""


def raise_lost_ends(store: RaisableLog) -> None:
    """Continue each queue above the progress of all groups. Reads all progress, and only after such damage."""
    if not store.headers_lost:
        return
    reached: dict[tuple[int, int], int] = {}
    for raw, value in store.progress():
        place = progress.split_key(raw)
        try:
            next_offset = progress.decode(value).next_offset if place else 0
        except ValueError:
            continue
        if place:
            reached[place[1:]] = max(reached.get(place[1:], 0), next_offset)
    for (topic_id, queue), next_offset in reached.items():
        topic = store.topic_by_id(topic_id)
        if topic is None or queue >= topic.queues or not store.raise_end(topic_id, queue, next_offset):
            continue
        log.error(
            "topic=%s queue=%d: its last messages are lost; it continues at offset %d, which a group has reached",
            topic.name, queue, next_offset,
        )  # fmt: skip
    store.put_ends_raised()
