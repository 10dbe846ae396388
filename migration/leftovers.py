"""Messages of planned topics outside their queues: delayed ones that wait, and dead letters that were not redriven.

They live in the engine alone, so no copy and no second side has them. Asked of the engines, by one request per page.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from common.contract import Code
from common.dead_letters import PREFIX, dead_letter_topic, group_of
from engine.client.admin import AdminError
from engine.client.copied import CopyLink
from engine.link.codes import OK
from engine.link.operations import TIMER_LIST
from engine.link.timer import decode_listed, encode_list

DELAYED_MAX = 100_000
"""More delayed messages of a topic are not counted: the number is then "at least"."""
PAGE, TOPICS_PAGE = 1_000, 10_000
EMPTY_PAGES_MAX = 100
"""Maximum number of consecutive answers that do not advance while old records are fetched."""


class LeftoverLink(CopyLink, Protocol):
    """An AdminClient."""

    def ask(self, verb: str, **options: object) -> dict: ...


class LeftDelayedMessages(NamedTuple):
    """Attributes: last_due_ms: when the last of them is due; 0: there is none."""

    messages: int
    last_due_ms: int


class LeftDeadLetters(NamedTuple):
    """Dead letters of one group.

    Attributes:
        topic: to which a redrive leads; a hidden topic for what a dual read has delivered from Kafka.
    """

    group: str
    topic: str
    messages: int


def delayed_messages(links: Sequence[LeftoverLink], topic: str) -> LeftDelayedMessages:
    """Delayed messages of a topic that wait, over all engines. Raises AdminError, OSError, LinkError."""
    count = last_ms = 0
    for link in links:
        start = 0
        while start >= 0 and count < DELAYED_MAX:
            code, payload = link.call(TIMER_LIST, encode_list(topic, start, PAGE))
            if code == Code.UNKNOWN_TOPIC:
                break
            if code != OK:
                raise AdminError(code, payload.decode("utf-8", "replace"))
            rows, start = decode_listed(payload)
            count += len(rows)
            last_ms = max([last_ms, *(row["due_ms"] for row in rows)])
    return LeftDelayedMessages(count, last_ms)


def dead_letters(
    links: Sequence[LeftoverLink], topics: Collection[str], groups: Collection[str]
) -> dict[str, tuple[LeftDeadLetters, ...]]:
    """Dead letters by the topic to which they belong, of every group that has some.

    Args:
        groups: names that are known: those of dead-letter topics whose names are cut cannot be told otherwise.
    Raises:
        AdminError, OSError, LinkError
    """
    known = {dead_letter_topic(each): each for each in groups}
    counts: dict[tuple[str, str], int] = {}
    for link in links:
        for name in _dead_letter_topics(link):
            group = known.get(name, group_of(name))
            for topic in topics:
                counts[topic, group] = counts.get((topic, group), 0) + _count(link, group, topic)
    found: dict[str, tuple[LeftDeadLetters, ...]] = {}
    for (topic, group), messages in sorted(counts.items()):
        if messages:
            found[topic] = (*found.get(topic, ()), LeftDeadLetters(group, topic, messages))
    return found


def _dead_letter_topics(link: LeftoverLink) -> list[str]:
    found: list[str] = []
    while True:
        page = link.ask("topics", prefix=PREFIX, after=found[-1] if found else "", limit=TOPICS_PAGE)["topics"]
        found += [each["name"] for each in page]
        if len(page) < TOPICS_PAGE:
            return found


def _count(link: LeftoverLink, group: str, topic: str) -> int:
    """Dead letters of a group that belong to a topic, at one engine."""
    count = after = stuck = 0
    end: int | None = None
    while (end is None or after < end) and stuck < EMPTY_PAGES_MAX:
        answer: Mapping[str, int] = link.ask("dead_letters", group=group, topic=topic, after=after)
        count += answer["count"]
        stuck = stuck + 1 if answer["next"] == after else 0
        after, end = answer["next"], answer["end"] if end is None else end
    return count
