"""A bound of what retention may have deleted, kept apart from the engine's own reckoning.

A topic's horizon is the latest time of sending before which its messages may be gone by age: at each moment, the time
that has passed, and the steps ahead of the clock that may count, minus the retention that may be in force. All times
are the world's, so a clock that is set back changes nothing. The horizon only grows. Between two changes it grows as
time does, so it is enough to look at it before each change.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.engine import Engine

SMALL_STEP_MS = 60_000
"""Steps of the clock that count at once (docs/design/0019)."""

KEPT_AFTER_MS = 3_000
"""Time after which a step ahead is in the log: the clocks are compared once per second."""

NEVER_MS = 1 << 62


@dataclass
class TopicAge:
    """Retention of one topic or family. `ages_ms`, `sizes`: all that were ever defined; 0: none of its own."""

    ages_ms: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    horizon_ms: int = -NEVER_MS


class Ages:
    """Ages of one engine's messages.

    Args:
        default_ms: retention of topics without one of their own; 0: never.

    Attributes:
        are_defined: the engine can read all definitions.
        default_ms: see above.
    """

    def __init__(self, engine: "Engine", default_ms: int) -> None:
        self._engine, self.default_ms = engine, default_ms
        self._topics: dict[str, TopicAge] = {}
        self.are_defined = True
        self._counted_ms = self._waiting_ms = self._stepped_ms = self._hits = self._shift_max_ms = 0

    def define(self, values: dict[tuple[str, str], dict[str, Any]], *, are_defined: bool = True) -> None:
        """The definitions are these from now on. `are_defined`: the engine can read them."""
        self.advance()
        self.are_defined = are_defined
        for (kind, name), value in values.items() if are_defined else ():
            if kind in ("topic", "family"):
                found = self._topics.setdefault(name.removesuffix("*"), TopicAge())
                found.ages_ms.append(value.get("retention_ms", 0))
                found.sizes.append(value.get("retention_bytes", 0))

    def step_clock(self, ahead_ms: int) -> None:
        """The wall clock is going to step."""
        self.advance()
        self._shift_max_ms = max(self._shift_max_ms, self._engine.env.wall_shift_ms + ahead_ms)
        if ahead_ms > SMALL_STEP_MS and self._engine.node is not None:
            self._waiting_ms += ahead_ms
            self._stepped_ms, self._hits = self._engine.world.now_ms, sum(self._engine.env.hits.values())
        elif ahead_ms > 0:
            self._counted_ms += ahead_ms
        elif 0 < self._waiting_ms + ahead_ms <= SMALL_STEP_MS:
            self._count()  # what is left of the step is small
        else:
            self._waiting_ms = max(0, self._waiting_ms + ahead_ms)

    def _count(self) -> None:
        """The steps ahead that have been waited for may count."""
        self._counted_ms, self._waiting_ms = self._counted_ms + self._waiting_ms, 0

    def end_process(self, power_cut: bool) -> bool:
        """The process has ended. The next one waits for a step ahead only when the log says that there was one.

        Returns whether it may take a step for time that has passed.
        """
        self.advance()
        ran_ms = self._engine.world.now_ms - self._stepped_ms
        if not (power_cut or ran_ms < KEPT_AFTER_MS or sum(self._engine.env.hits.values()) > self._hits):
            return False
        is_waiting = self._waiting_ms > 0
        self._count()
        return is_waiting

    def advance(self) -> None:
        """Look at all horizons; called before each change."""
        now_ms = self._engine.world.now_ms + self._counted_ms
        for topic in self._topics.values():
            own = topic.ages_ms[-1:] if self.are_defined else topic.ages_ms
            age_ms = min(each or self.default_ms or NEVER_MS for each in own)
            topic.horizon_ms = max(topic.horizon_ms, now_ms - age_ms)

    def is_past(self, topic: str, sent_ms: int, due_ms: int) -> bool:
        """Whether a message of that topic, sent then, may be gone by its age.

        Args:
            due_ms: of a delayed message, by the wall clock: it is not stored before.
        """
        self.advance()
        found = self._of(topic)
        return found is not None and max(sent_ms, due_ms - self._shift_max_ms) < found.horizon_ms

    def size_min(self, topic: str) -> int:
        """The smallest size that the topic was ever limited to; 0: never."""
        found = self._of(topic)
        return min((size for size in found.sizes if size), default=0) if found is not None else 0

    def _of(self, topic: str) -> TopicAge | None:
        """The topic's own, or that of the family with the name's prefix."""
        return self._topics.get(topic) or self._topics.get(topic.rstrip("0123456789"))
