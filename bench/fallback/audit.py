"""Comparison of the callers' answers with the log."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench.fallback.load import connect, credential, key_of
from bench.generator import LoadTarget
from common.contract import Consumer, Position, PullRequest


class Audit(NamedTuple):
    """Differences between the answers and the log.

    Attributes:
        lost: messages that were answered as stored and are not in the log.
        swapped: messages whose first copy lies after a later one of their key.
        other_ids: copies whose id differs from the first copy's.
    """

    lost: int
    swapped: int
    copies: int
    other_ids: int


def audit(target: LoadTarget, topic: str, queues: int, stored: Iterable[tuple[int, int]]) -> Audit:
    """Read the whole topic; `stored`: (thread, number) of the messages that must be in it."""
    ids: dict[tuple[int, int], int] = {}
    last: dict[str, int] = {}
    swapped = copies = other_ids = 0
    for identity, body in read_all(target, topic, queues):
        thread, number = map(int, body.split(b".", 2)[:2])
        if (thread, number) in ids:
            copies += 1
            other_ids += ids[thread, number] != hash(identity)
            continue
        ids[thread, number] = hash(identity)
        key = key_of(thread, number)
        swapped += number < last.get(key, -1)
        last[key] = max(number, last.get(key, -1))
    return Audit(sum(place not in ids for place in stored), swapped, copies, other_ids)


def read_all(target: LoadTarget, topic: str, queues: int) -> Iterator[tuple[str, bytes]]:
    """Yield (id, body), queue by queue in order."""
    client: Any = connect(Consumer, target.consumer)
    who = credential(target)
    for queue in range(queues):
        offset, end = 0, 1
        while offset < end:
            places = [Position(topic, queue, offset=offset)]
            request = PullRequest(credential=who, group="audit", positions=places, max_messages=1000, max_bytes=1 << 20)
            response = client.pull(request)
            yield from ((each.id, each.message.body) for each in response.deliveries)
            (report,) = response.positions
            offset, end = report.next_offset, report.end_offset
