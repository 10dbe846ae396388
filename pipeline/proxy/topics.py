"""Topics by a pattern, their queues, bounds, and offsets of a time, all by pulls that read no message."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from common.contract import Code, Position
from pipeline.errors import CallRefused
from pipeline.proxy.attempts import CallAttempts, code_name, is_tried_again
from pipeline.proxy.pulls import PositionPulls

POSITIONS_MAX = 500
QUEUES_FIRST = 16
QUEUES_MAX = 1 << 16
ALL_QUEUES_S = 30.0


class TopicQueue(NamedTuple):
    topic: str
    queue: int


class QueueBounds(NamedTuple):
    """The first offset that is still stored, and the exclusive end of what can be read."""

    first: int
    end: int


def queue_bounds(pulls: PositionPulls, topics: Sequence[str]) -> dict[TopicQueue, QueueBounds]:
    """The bounds of every queue of the topics.

    The contract has no call that tells a topic's number of queues: a position beyond it is INVALID, so queues are asked
    for in growing steps until one is.

    Raises:
        CallRefused: a topic is unknown or forbidden.
    """
    found: dict[TopicQueue, QueueBounds] = {}
    for topic in topics:
        first, step = 0, QUEUES_FIRST
        while first < QUEUES_MAX:
            asked = [TopicQueue(topic, queue) for queue in range(first, first + step)]
            known = _known_bounds(pulls, asked)
            found.update(known)
            if len(known) < len(asked):
                break
            first, step = first + step, min(2 * step, POSITIONS_MAX)
    return found


def matching_topics(pulls: PositionPulls, pattern: str) -> dict[str, int]:
    """Topics whose whole name matches the pattern, with their numbers of queues, as the proxy knows them now.

    Only topics that the application may pull from; none of dead letters.
    """
    expression, found, after = re.compile(pattern), {}, ""
    while page := pulls.topics_after(after):
        found.update({each.topic: each.queues for each in page if expression.fullmatch(each.topic)})
        after = page[-1].topic
    return found


def matching_bounds(pulls: PositionPulls, pattern: str) -> dict[TopicQueue, QueueBounds]:
    """The bounds of every queue of the topics that match. A topic that is deleted meanwhile is left out."""
    topics = matching_topics(pulls, pattern)
    queues = [TopicQueue(topic, queue) for topic, count in topics.items() for queue in range(count)]
    found: dict[TopicQueue, QueueBounds] = {}
    for first in range(0, len(queues), POSITIONS_MAX):
        part = queues[first : first + POSITIONS_MAX]
        for each, report in zip(part, _reports(pulls, part), strict=True):
            if report.code in (Code.UNKNOWN_TOPIC, Code.INVALID):
                continue
            if report.code >= 100:
                raise _refused(each, report)
            found[each] = QueueBounds(report.min_offset, report.end_offset)
    return found


def offsets_at(pulls: PositionPulls, queues: Sequence[TopicQueue], at_time_ms: int) -> dict[TopicQueue, int]:
    """The offset of the first message of each queue that was stored at this time or later."""
    found: dict[TopicQueue, int] = {}
    for first in range(0, len(queues), POSITIONS_MAX):
        part = queues[first : first + POSITIONS_MAX]
        for each, report in zip(part, _reports(pulls, part, at_time_ms=at_time_ms), strict=True):
            if report.code >= 100:
                raise _refused(each, report)
            found[each] = report.next_offset
    return found


def _known_bounds(pulls: PositionPulls, queues: Sequence[TopicQueue]) -> dict[TopicQueue, QueueBounds]:
    """The bounds of those of the queues that exist; they are the first ones."""
    found: dict[TopicQueue, QueueBounds] = {}
    for each, report in zip(queues, _reports(pulls, queues), strict=True):
        if report.code == Code.INVALID and each.queue:
            break
        if report.code >= 100:
            raise _refused(each, report)
        found[each] = QueueBounds(report.min_offset, report.end_offset)
    return found


def _reports(pulls: PositionPulls, queues: Sequence[TopicQueue], **fields: int) -> Sequence[Any]:
    """The reports on positions; asked again while a broker group does not answer for its queues."""
    attempts = CallAttempts("pull", ALL_QUEUES_S)
    positions = [Position(each.topic, each.queue, **fields) for each in queues]
    while True:
        response = pulls.pull(positions, 0, 1, 0).response
        away = next((report for report in response.positions if is_tried_again(report.code)), None)
        if away is None:
            return response.positions
        attempts.pause(f"topic {away.topic} queue {away.queue}: {code_name(away.code)}: {away.error}")


def _refused(each: TopicQueue, report: Any) -> CallRefused:
    return CallRefused(f"topic {each.topic} queue {each.queue}: {code_name(report.code)}: {report.error}")
