"""Answers of a primary that it lacks a message, and from when on such an answer is final.

A cluster that comes back gets what its client has held meanwhile, so an answer right after that says nothing. An answer
counts once the primary has answered for some time. Any answer that a message of the topic is missing proves that all
parts of the primary answer, so it starts that time for all messages of the topic which were sent before it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

from common.contract import Code
from producer_proxy.journal.taken import TakenEntry
from producer_proxy.targets.base import Outcome, SendTarget

ABSENT_SHARE = 7
"""Share of a primary's settling time for which it has to answer, before it is believed that it lacks a message."""


class Absence:
    """
    Args:
        primary: the side that is asked.
        now_ms: Unix ms, as in entries.
    """

    def __init__(self, primary: SendTarget, now_ms: Callable[[], int]) -> None:
        self._primary, self._now_ms = primary, now_ms
        self._answers: dict[str, deque[tuple[float, int]]] = {}
        """By topic: times (monotonic, Unix ms) of answers. The first one is old enough, if any is."""

    def note(self, asked: Iterable[tuple[TakenEntry, Outcome]]) -> None:
        """The primary was asked about these entries. One that tells nothing about a topic starts the time anew."""
        codes: dict[str, set[int]] = {}
        for each, outcome in asked:
            codes.setdefault(each.topic, set()).add(outcome[0])
        now = time.monotonic()
        for topic, found in codes.items():
            if Code.OK in found:
                answers = self._answers.setdefault(topic, deque())
                answers.append((now, self._now_ms()))
                while len(answers) > 1 and answers[1][0] <= now - self._wait_s:
                    answers.popleft()
            elif Code.DUPLICATE not in found:
                self._answers.pop(topic, None)

    def is_final(self, each: TakenEntry) -> bool:
        """Whether the answer that was noted last, which is that the primary lacks this message, is final."""
        at, at_ms = self._answers[each.topic][0]
        is_old = at <= time.monotonic() - self._wait_s and at_ms >= each.entry.accepted_at_ms
        return is_old and self.is_settled(each)

    def is_settled(self, each: TakenEntry) -> bool:
        """Whether the primary must have stored the message by now, if it ever will."""
        return self._now_ms() - each.entry.accepted_at_ms > 1000 * self._primary.settled_after_s

    @property
    def _wait_s(self) -> float:
        return self._primary.settled_after_s / ABSENT_SHARE
