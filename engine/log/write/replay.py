"""Batches that are in the log already: what control records and copied ones mean for the view, at a start and on a slave."""

from collections.abc import Callable

from engine.log.format import (
    BATCH_HEADER_SIZE,
    KIND_COUNTERS,
    KIND_PROGRESS,
    KIND_TIMER_MARK,
    KIND_TOPIC,
    parse_counter,
    parse_progress,
    parse_timer_mark,
    parse_topic,
    split_records,
)
from engine.log.types import Topic
from engine.log.view import View
from engine.log.write.copied_state import is_copied, take_copied

REPLAYED = {KIND_TOPIC: "topics", KIND_PROGRESS: "progress", KIND_COUNTERS: "counters", KIND_TIMER_MARK: "ended timers"}
"""Kinds of control batches that are replayed, with the names of their records in log lines."""


def replay(
    batch: bytes, view: View, on_topic: Callable[[Topic], None], on_counter: Callable[[int, int, int], None],
    on_mark: Callable[[int, int, bytes], None],
) -> None:  # fmt: skip
    """Apply the records of a whole control batch, in order, or a copied one. Any other batch is ignored.

    Args:
        batch: of a copied one its header and its last 8 bytes are enough.
        on_topic: called with the topic of each TOPIC record; it puts it into the view.
        on_counter: called as (topic id, queue, next offset) for each COUNTERS record, which the view has then.
        on_mark: called as (covered to, base, addresses) for each TIMER_MARK record, whose timers the view has then.
    """
    kind, offset = batch[10], int.from_bytes(batch[32:40], "little")
    if is_copied(batch):
        take_copied(view, batch)
    if kind not in REPLAYED:
        return
    for payload in split_records(batch[BATCH_HEADER_SIZE:]):
        if kind == KIND_TOPIC:
            on_topic(Topic.stored(*parse_topic(payload)))
        elif kind == KIND_PROGRESS:
            key, value = parse_progress(payload)
            view.put(b"p" + key, value or None)
        elif kind == KIND_COUNTERS:
            counter = parse_counter(payload)
            view.put_counter(*counter)
            on_counter(*counter)
        else:
            covered_to, base, addresses = parse_timer_mark(payload)
            view.put_ended_timers(base, offset, addresses)
            on_mark(covered_to, base, addresses)
