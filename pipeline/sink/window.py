"""The target's window of ids: how long a repetition stores nothing twice, and when a batch was first planned."""

import json
import logging
import time

from pipeline.archive.place import ArchivePlace
from pipeline.options import WriteOptions
from pipeline.proxy.pulls import ConsumerEndpoints, PositionPulls

log = logging.getLogger("penstock.pipeline")


def id_window_s(endpoints: ConsumerEndpoints, topic: str) -> float | None:
    """The window of a topic by a consumer proxy; None: the application may not pull from it, or it does not exist.

    Raises:
        CallRefused: no proxy tells.
    """
    with PositionPulls(endpoints) as pulls:
        after = topic[:-1]  # it is before the topic in the order of names
        while page := pulls.topics_after(after):
            for each in page:
                if each.topic >= topic:
                    return each.id_window_ms / 1000 if each.topic == topic else None
            after = page[-1].topic
    return None


def planned_ms(checkpoint: str, batch: int) -> int | None:
    """When Spark first planned a batch, by its checkpoint; None where this cannot be read."""
    try:
        place = ArchivePlace(checkpoint.removeprefix("file:") if "://" not in checkpoint else checkpoint)
        with place.files.open_input_stream(place.path(f"offsets/{batch}")) as source:
            return int(json.loads(source.read().decode().splitlines()[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def warning_of(batch: int, topic: str, age_s: float, window_s: float) -> str:
    """What is to be said of a batch that is committed so long after it was planned; empty: nothing."""
    figures = f"batch {batch}: committed {age_s:.0f} s after it was planned, and topic {topic} recognises an id for {window_s:g} s"
    if age_s > window_s:
        return (
            f"{figures}: rows that an earlier attempt had stored may be stored twice: raise --id-window-s of the topic"
        )
    if 2 * age_s > window_s:
        return f"{figures}: a repetition of such a batch can come too late: use smaller batches, or raise --id-window-s"
    return ""


def warn_of_late_batch(options: WriteOptions, checkpoint: str, batch: int) -> None:
    """Warn when a batch, or its repetition, comes after the window. Needs option `windowEndpoint`; never fails the batch."""
    if not options.window_addresses or not checkpoint:
        return
    planned = planned_ms(checkpoint, batch)
    if planned is None:
        log.warning("batch %d: checkpoint %s: cannot be read: its age is not checked", batch, checkpoint)
        return
    endpoints = ConsumerEndpoints(
        options.window_addresses, options.credential, options.window_group, options.deadline_s
    )
    try:
        window_s = id_window_s(endpoints, options.topic)
    except Exception as error:
        log.warning("batch %d: window of topic %s is not known: %s", batch, options.topic, error)
        return
    if window_s is None:
        log.warning("batch %d: window of topic %s is not known: it needs a grant to pull", batch, options.topic)
    elif text := warning_of(batch, options.topic, time.time() - planned / 1000, window_s):
        log.warning("%s", text)
