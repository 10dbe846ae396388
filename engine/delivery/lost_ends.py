"""Ends of queues that a start finds below the progress of a group: raised, so that no group skips new messages.

A batch with a destroyed header may have been its queue's last one, and a power cut may keep a record of progress and lose
messages before it: what was not synced may be missing anywhere, and missing bytes at the end of a full segment look like
bytes that were never used. A new message would get an offset that the group has passed, and the group would never see it.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from engine.delivery import progress
from engine.delivery.native import FORM
from engine.log.port import ProgressLog, TopicLog
from engine.log.types import QueueEnd

log = logging.getLogger(__name__)


class RaisableLog(ProgressLog, TopicLog, Protocol):
    """The log, after a start that may have found such damage.

    Attributes:
        headers_lost: it has, or an earlier start had and ended before `put_ends_raised`.
        raised: ends that the start has raised by what it could read of headers, in the view only.
    """

    headers_lost: bool
    raised: list[QueueEnd]

    def replayed_progress(self) -> Iterator[tuple[bytes, bytes]]:
        """As `progress`, of the keys that this start has replayed. The log below older ones was durable before them."""

    def raise_ends(self, ends: Iterable[QueueEnd], in_view: Iterable[QueueEnd]) -> list[QueueEnd]:
        """Have queues continue at these offsets at least; returns those whose end was below.

        Args:
            in_view: those that only the view has.
        """

    def put_ends_raised(self) -> None:
        """Note that no end has to be raised any more. Until this is durable each start has `headers_lost`."""


def raise_lost_ends(store: RaisableLog) -> None:
    """Continue each queue above the progress of all groups.

    Reads the progress that the start has replayed, and all progress after damage.
    """
    for topic_id, queue, next_offset in store.raise_ends(_reached(store), store.raised):
        topic = store.topic_by_id(topic_id)
        log.error(
            "topic=%s queue=%d: its last messages are lost; it continues at offset %d, which a group has reached",
            topic.name if topic else topic_id, queue, next_offset,
        )  # fmt: skip
    store.put_ends_raised()


def _reached(store: RaisableLog) -> list[QueueEnd]:
    """The highest offsets that groups have reached in queues of existing topics."""
    reached: dict[tuple[int, int], int] = {}
    for raw, value in store.progress() if store.headers_lost else store.replayed_progress():
        place = progress.split_key(raw)
        try:
            next_offset = FORM.InFlightRanges().load(value, 0)[1] if place else 0
        except ValueError:
            continue
        if place:
            reached[place[1:]] = max(reached.get(place[1:], 0), next_offset)
    topics = {topic_id: store.topic_by_id(topic_id) for topic_id, _ in reached}
    return [
        (topic_id, queue, next_offset)
        for (topic_id, queue), next_offset in reached.items()
        if (topic := topics[topic_id]) is not None and queue < topic.queues
    ]
