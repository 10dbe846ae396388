"""Outcomes of sends per topic over the last minutes, of topics that a plan may move: docs/design/0035-migration.md.

A plan's gate on the error rate reads them from the operator's port. A topic of the engine that has never moved is not
counted: on the hot path it costs one look-up per call while others are counted, and nothing otherwise.
"""

from collections.abc import Callable

from common.config.definitions import TopicDefinition
from common.config.text_values import ENGINE_HOME
from common.contract import Code
from common.ops.connection_pages import MorePages, OpsAnswer, OpsRequest
from common.ops.send_pages import SENDS_PATH
from producer_proxy.send.native import TopicSends
from producer_proxy.send.sends_window import SAMPLES

FAILURES = frozenset((Code.UNAVAILABLE, Code.TIMEOUT, Code.OVERLOADED, Code.DISK_FULL))
"""Codes that say that the path of the messages does not work. What a caller causes, what a limit or a fence refuses, and
what a proxy that stops refuses are no failures, and are not counted at all. The hot path has the same list."""
STORED = frozenset((Code.OK, Code.BUFFERED, Code.DUPLICATE))
SAMPLE_S = 10.0


class SendOutcomes:
    """The counted topics of one proxy.

    Args:
        definition: of a topic by its name.
        monotonic_s: the time.
    """

    def __init__(self, definition: Callable[[str], TopicDefinition | None], monotonic_s: Callable[[], float]) -> None:
        self._definition, self._monotonic_s = definition, monotonic_s
        self.topics: dict[bytes, TopicSends] = {}
        self._sampled_s = monotonic_s()

    def follow(self, name: bytes) -> TopicSends | None:
        """Count a topic from now on, if a plan may be moving it, or no more."""
        definition = self._definition(name.decode())
        if definition is None or not is_moving(definition):
            self.topics.pop(name, None)
            return None
        return self.topics.setdefault(name, TopicSends())

    def count(self, topic: str, code: int) -> None:
        """Count one message of the rare path."""
        if code not in FAILURES and code not in STORED:
            return
        name = topic.encode()
        if (sends := self.topics.get(name) or self.follow(name)) is not None:
            sends.add(code in STORED, code in FAILURES)

    def tick(self) -> None:
        """Move the window on, when it is time."""
        if self._monotonic_s() - self._sampled_s < SAMPLE_S:
            return
        self._sampled_s = self._monotonic_s()
        for sends in self.topics.values():
            sends.sample()

    def pages(self) -> MorePages:
        """The page of the operator's port: [stored, failed] per topic that had a message in the window, and its length."""

        def show(asked: OpsRequest) -> OpsAnswer:
            if asked.method not in ("GET", "HEAD"):
                return "405 Method Not Allowed", {"error": "method not allowed: use GET"}
            recent = {name.decode(): sends.recent for name, sends in self.topics.items()}
            topics = {name: counts for name, counts in recent.items() if any(counts)}
            return "200 OK", {"window_s": SAMPLE_S * SAMPLES, "topics": topics}

        return {SENDS_PATH: show}


def is_moving(topic: TopicDefinition) -> bool:
    """Whether a plan may be at work with a topic."""
    return topic.home != ENGINE_HOME or bool(topic.secondary) or topic.cut is not None
