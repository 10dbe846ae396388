"""Times and refusals of sends by topic: of the topics that were used last, and at most as many as the operator allows.

They are on a page of the operator's port and not in /metrics, whose size would follow the number of topics: who asks
gets the topics of the last seconds. A message costs nothing more: refused ones are counted, and of accepted calls one
per millisecond at most is noted.
"""

import time
from collections.abc import Callable
from typing import Any

from common.ops.connection_pages import OpsAnswer, OpsRequest
from common.ops.topic_figures import BUCKETS, FIRST_BOUND_S

LISTED_MAX = 200
WITHIN_S_MAX = 3_600
FORGOTTEN_S = 3_600.0
APPLICATIONS_MAX = 20
"""Applications of a topic whose refusals are told apart."""


class OneTopic:
    """
    Attributes:
        buckets: sampled calls by time.
        codes: refused messages; by_application: the same, with "" for calls without a valid credential and for
            applications beyond APPLICATIONS_MAX.
        used_s: time of the last of both.
    """

    __slots__ = ("buckets", "by_application", "codes", "used_s")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.codes: dict[int, int] = {}
        self.by_application: dict[str, dict[int, int]] = {}
        self.used_s = 0.0


class TopicFigures:
    """
    Args:
        topics_max: topics of which figures are kept; 0: none.
        is_known: whether a topic has a definition: names that clients make up must not push others out.

    Attributes:
        pushed_out: topics whose figures made room for others.
    """

    def __init__(
        self, topics_max: int, is_known: Callable[[str], bool], clock_s: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._topics_max, self._is_known, self._clock_s = topics_max, is_known, clock_s
        self._topics: dict[bytes, OneTopic] = {}  # the last used one last
        self.pushed_out = 0

    def __len__(self) -> int:
        return len(self._topics)

    def answered(self, topic: bytes, seconds: float) -> None:
        """A sampled call to a topic was answered within this time."""
        if (found := self._used(topic)) is not None:
            bound, number = FIRST_BOUND_S, 0
            while seconds > bound and number < BUCKETS - 1:
                bound, number = bound * 2, number + 1
            found.buckets[number] += 1

    def refused(self, topic: bytes, code: int, application: str) -> None:
        """A message of an application to a topic was answered with a code that is no success."""
        if (found := self._used(topic)) is not None:
            found.codes[code] = found.codes.get(code, 0) + 1
            if application not in found.by_application and len(found.by_application) >= APPLICATIONS_MAX:
                application = ""
            own = found.by_application.setdefault(application, {})
            own[code] = own.get(code, 0) + 1

    def _used(self, topic: bytes) -> OneTopic | None:
        found = self._topics.pop(topic, None)
        if found is None:
            if not self._topics_max or not self._is_known(topic.decode("utf-8", "replace")):
                return None
            if len(self._topics) >= self._topics_max:
                del self._topics[next(iter(self._topics))]
                self.pushed_out += 1
            found = OneTopic()
        found.used_s = self._clock_s()
        self._topics[topic] = found
        return found

    def listed(self, within_s: int, limit: int) -> dict[str, Any]:
        """Totals of the topics that were used within this time, the last ones first. Forgets topics that are long idle."""
        now_s = self._clock_s()
        for topic in [each for each, figures in self._topics.items() if now_s - figures.used_s > FORGOTTEN_S]:
            del self._topics[topic]
        used = [each for each, figures in reversed(self._topics.items()) if now_s - figures.used_s <= within_s]
        shown = {name.decode("utf-8", "replace"): _shown(self._topics[name]) for name in used[:limit]}
        return {"topics": shown, "left_out": len(used) - len(shown), "pushed_out": self.pushed_out}


def _shown(topic: OneTopic) -> dict[str, Any]:
    by_application = {name: _by_code(codes) for name, codes in topic.by_application.items()}
    return {"buckets": topic.buckets, "refused": _by_code(topic.codes), "by_application": by_application}


def _by_code(codes: dict[int, int]) -> dict[str, int]:
    return {str(code): count for code, count in codes.items()}


def topic_figures_page(figures: TopicFigures) -> Callable[[OpsRequest], OpsAnswer]:
    """`GET /topic-figures?within_s=&limit=`. As /metrics it needs no proof."""

    def show(asked: OpsRequest) -> OpsAnswer:
        if asked.method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", {"error": "method not allowed: use GET"}
        found = {}
        for name, most, usual in (("within_s", WITHIN_S_MAX, 60), ("limit", LISTED_MAX, LISTED_MAX)):
            text = asked.query.get(name, str(usual))
            if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) <= most):
                return "400 Bad Request", {"error": f"{name}: use a number from 0 to {most:,}"}
            found[name] = int(text)
        return "200 OK", figures.listed(found["within_s"], found["limit"])

    return show
