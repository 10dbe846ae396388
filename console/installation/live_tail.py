"""Live tails: new messages of a topic as they are stored, for a bounded number of pages at once.

A tail holds one thread of the server, so all of them together leave the pages their threads. It polls the engines by
READs that wait, and are not repeated while they do; nothing is leased and no group moves.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from select import select

from common.filter.native import Filter
from common.placement import topic_hash
from console.installation.broker_queries import BrokerQueries
from console.installation.stored_messages import FoundMessage, decoded
from engine.client import lookup
from engine.client.admin import AdminClient, AdminError
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, UNAVAILABLE, UNKNOWN_TOPIC
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion

TAILS_MAX, TAILS_PER_ACCOUNT_MAX = 8, 2
QUEUES_MAX = 256
TAIL_S_MAX = 600.0
WAIT_MS = 15_000
"""Longest wait of a READ, which ends with the first message. Each READ costs an idle engine some 2 ms."""
BEAT_S, PAUSE_S = 2.0, 0.2
"""Longest time without a list, and the pause after each."""
PAGE_MESSAGES, PAGE_BYTES = 50, 1 << 20
GOOD = (OK, UNAVAILABLE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC)


class StreamPlaces:
    """Counts the streams of one kind that run, by account and in all.

    Args:
        words: of such streams, as sentences name them.
    """

    def __init__(self, words: str, in_all_max: int, per_account_max: int) -> None:
        self._words, self._in_all_max, self._per_account_max = words, in_all_max, per_account_max
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    def take(self, account: str) -> str:
        """Take a place for an account; returns why there is none, or an empty text."""
        with self._lock:
            if self._running[account] >= self._per_account_max:
                return f"You have {self._per_account_max} {self._words} open: close one first."
            if self._running.total() >= self._in_all_max:
                return f"{self._in_all_max} {self._words} are open in all: try again when one has ended."
            self._running[account] += 1
            return ""

    def give_back(self, account: str) -> None:
        with self._lock:
            self._running[account] -= 1

    @property
    def count(self) -> int:
        """The number of streams that run."""
        return self._running.total()


def tail_places() -> StreamPlaces:
    """Those of live tails."""
    return StreamPlaces("live tails", TAILS_MAX, TAILS_PER_ACCOUNT_MAX)


class LiveTail:
    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries
        self.places = tail_places()

    def follow(self, topic: str, queues: int, wanted: Filter | None) -> Iterator[list[FoundMessage]]:
        """New messages that pass the filter, at least one list per three seconds, which may be empty, for TAIL_S_MAX.

        An engine that does not know the topic yet is read from its first message on. The caller closes the
        iterator early when its page has gone. Raises LinkError, AdminError and OSError.
        """
        end = time.monotonic() + TAIL_S_MAX
        with self._links(topic, queues) as (links, positions):
            asked: dict[AdminClient, dict[int, int]] = {}
            while time.monotonic() < end:
                for name, link in links.items():
                    if positions[name] and link not in asked:
                        _ask(link, topic, positions[name])
                        asked[link] = positions[name]
                found: list[FoundMessage] = []
                for link in select(list(asked), [], [], BEAT_S)[0]:
                    found += _take(link, topic, asked.pop(link), wanted)
                yield found
                time.sleep(PAUSE_S)

    @contextmanager
    def _links(self, topic: str, count: int) -> Iterator[tuple[dict[str, AdminClient], dict[str, dict[int, int]]]]:
        """Links, and per engine the end offset of each of its queues."""
        names = list(self._queries.places())
        placement, hashed = self._queries.placement(), topic_hash(topic.encode())
        with self._queries.complete() as links:
            homes = {queue: names[placement.home(hashed, queue)] for queue in range(min(count, QUEUES_MAX))}
            yield (
                links,
                {name: _ends(links[name], topic, [queue for queue in homes if homes[queue] == name]) for name in links},
            )


def _ends(link: AdminClient, topic: str, queues: list[int]) -> dict[int, int]:
    if not queues:
        return {}
    question = ReadQuestion([ReadPosition(topic, queue) for queue in queues], 1, PAGE_BYTES)
    answer = _decoded(*link.call(READ, question.encode()))
    return {queue: report.end_offset or 0 for queue, report in zip(queues, answer.reports, strict=True)}


def _ask(link: AdminClient, topic: str, offsets: dict[int, int]) -> None:
    """Ask an engine to read on in all queues, or to wait for a message."""
    positions = [ReadPosition(topic, queue, offset=offset) for queue, offset in offsets.items()]
    link.send(READ, ReadQuestion(positions, PAGE_MESSAGES, PAGE_BYTES, WAIT_MS).encode())


def _take(link: AdminClient, topic: str, offsets: dict[int, int], wanted: Filter | None) -> list[FoundMessage]:
    """The messages of its answer; `offsets` moves."""
    answer = _decoded(*link.receive())
    for queue, report in zip(list(offsets), answer.reports, strict=True):
        if report.code not in GOOD:
            raise AdminError(report.code, report.error or "the engine does not answer")
        following = report.min_offset if report.code == OFFSET_OUT_OF_RANGE else report.next_offset
        offsets[queue] = max(offsets[queue], following or 0)
    stored = (each for piece in answer.pieces() for each in lookup.messages_of(piece))
    return [decoded(topic, each) for each in stored if wanted is None or wanted.passes(each.message)]


def _decoded(code: int, payload: bytes) -> ReadAnswer:
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    return ReadAnswer.decode(payload)
