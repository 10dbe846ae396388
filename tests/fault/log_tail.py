"""Damage to the end of a stopped engine's log, after everything that was answered as durable.

Reads the bytes by docs/format/log.md alone, so that the engine's own reader does not judge itself.
"""

import mmap
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.fault.history import OK, Sent

_SEGMENT_HEADER = 64
_BATCH = struct.Struct("<IIHBBIIIIIQq")
_MAGIC, _MESSAGES, _TOPIC = 0x5042, 0, 1
DAMAGES = ("torn", "zeroed", "garbage")


class Batch(NamedTuple):
    at: int
    end: int
    kind: int
    topic_id: int
    queue: int
    first_offset: int
    count: int


def damage_tail(log: Path, topic: str, sent: Iterable[Sent], how: str, chance: random.Random) -> str:
    """Do one of DAMAGES to the newest segment with batches in it; returns what was done, for a failure's message."""
    for path in sorted(log.glob("*.seg"), reverse=True):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            batches = list(_walk(data))
            if batches:
                return f"{path.name}: {_damage(data, batches, topic, sent, how, chance)}"
    raise AssertionError("a log without a batch")


def _walk(data: mmap.mmap) -> Iterable[Batch]:
    at = _SEGMENT_HEADER
    while at + _BATCH.size <= len(data):
        _, size, magic, kind, _, _, topic_id, queue, count, _, first_offset, _ = _BATCH.unpack_from(data, at)
        if magic != _MAGIC or size < _BATCH.size:
            return
        yield Batch(at, at + size, kind, topic_id, queue, first_offset, count)
        at += size + -size % 8


def _durable_end(data: mmap.mmap, batches: list[Batch], topic: str, sent: Iterable[Sent]) -> int:
    """Behind the last batch that holds a message which a client was told is stored, and behind every topic's definition."""
    topic_id = _topic_id(data, batches, topic)
    highest: dict[int, int] = {}
    for each in sent:
        if each.outcome == OK:
            highest[each.place[0]] = max(each.place[1], highest.get(each.place[0], -1))
    kept = [
        batch.end
        for batch in batches
        if batch.kind == _TOPIC
        or (
            batch.kind == _MESSAGES
            and batch.topic_id == topic_id
            and batch.first_offset <= highest.get(batch.queue, -1) < batch.first_offset + batch.count
        )
    ]
    return max(kept)


def _topic_id(data: mmap.mmap, batches: list[Batch], topic: str) -> int:
    for batch in batches:
        at = batch.at + _BATCH.size
        while batch.kind == _TOPIC and at < batch.end:
            (size,) = struct.unpack_from("<I", data, at)
            if data[at + 13 : at + 4 + size].partition(b"@")[0] == topic.encode():
                return struct.unpack_from("<I", data, at + 5)[0]
            at += 4 + size
    raise AssertionError(f"no topic {topic} in the log's newest segment")


def _damage(
    data: mmap.mmap, batches: list[Batch], topic: str, sent: Iterable[Sent], how: str, chance: random.Random
) -> str:
    durable, last = _durable_end(data, batches, topic, sent), batches[-1]
    end = last.end + -last.end % 8
    if how == "garbage":
        noise = chance.randbytes(chance.randrange(1, 65_536))
        data[end : end + len(noise)] = noise
        return f"{len(noise)} bytes of garbage at {end}"
    if (
        durable == last.end
    ):  # nothing unconfirmed was under way: make it, a copy of the last batch at a place where it cannot be valid
        copy = data[last.at : last.end]
        data[end : end + len(copy)] = copy
        durable, end = end, end + len(copy)
    cut = chance.randrange(durable + 1, end) if how == "torn" else durable
    data[cut:end] = bytes(end - cut)
    return f"{how} from {cut} to {end}, durable up to {durable}"
