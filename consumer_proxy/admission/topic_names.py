"""Names of the topics that an application may pull from, a page at a time."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

from common.clock import Clock
from common.config.definitions import TopicDefinition
from common.credential import Principal

PAGE_MAX = 500
PAUSE_FACTOR = 100
"""The list of names is made anew at most so often that it takes 1% of the time. With 100,000 topics that is 0.2 s every
20 s, and until then a new topic is missing."""


class TopicNames:
    """All defined topics in the order of their names. Topics that a family would make are not among them."""

    def __init__(self, view: Any, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self._names: list[str] = []
        self._generation: Any = None
        self._kept_until_s = 0.0

    def page(self, principal: Principal, after: str) -> list[TopicDefinition]:
        """The first of the topics after this name from which the application may pull."""
        self._follow()
        names: set[str] = set()
        for pattern in principal.pull_patterns:
            if pattern.endswith("*"):
                names.update(self._with_prefix(pattern[:-1], after))
            elif pattern > after:
                names.add(pattern)
        defined = (self._view.topic(name) for name in sorted(names))
        return list(islice((each for each in defined if each is not None), PAGE_MAX))

    def _with_prefix(self, prefix: str, after: str) -> Iterator[str]:
        """The first PAGE_MAX names of that prefix behind `after`."""
        first = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        return takewhile(lambda name: name.startswith(prefix), self._names[first : first + PAGE_MAX])

    def _follow(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._generation == self._view.generation or now_s < self._kept_until_s:
            return
        began_s = time.perf_counter()
        self._generation = self._view.generation
        self._names = self._view.names_with(TopicDefinition.kind, b"")
        self._kept_until_s = now_s + PAUSE_FACTOR * (time.perf_counter() - began_s)
