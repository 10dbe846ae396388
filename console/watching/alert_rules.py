"""Alert rules: their defaults, and the conditions that a sample meets. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from console.database.series_history import ALL, ANSWERS, SeriesKey
from console.shown import amount
from console.watching.figures import Sample

THRESHOLD_MAX, HOLD_S_MAX = 1e15, 86_400
LEAST_MESSAGES_S = 1.0
LEVELS = ("is fine", "is filling up", "is so full that old messages are deleted early", "is full: messages are refused")


@dataclass(frozen=True)
class AlertRule:
    """A rule with its present bounds.

    Attributes:
        about: what it looks at. unit: of the threshold.
        threshold: the alert is due at this value or above. hold_s: for so long.
        is_on: whether it is looked at.
        version: 0: it was never changed.
    """

    name: str
    about: str
    unit: str
    threshold: float
    hold_s: int
    is_on: bool = True
    version: int = 0


class Measured(NamedTuple):
    """The value of a rule for one subject, and the sentence that an alert has."""

    rule: str
    subject: str
    value: float
    sentence: str


DEFAULTS: tuple[AlertRule, ...] = (
    AlertRule("engine", "An engine does not answer the console", "", 1, 30),
    AlertRule("lag", "Age of the oldest message that a group has not acknowledged", "s", 600, 300),
    AlertRule("lag_messages", "Messages that a group has not acknowledged", "messages", 1_000_000, 300),
    AlertRule("refused", "Share of sent messages that are refused", "%", 5, 120),
    AlertRule("buffer", "Age of the oldest message in a fallback buffer", "s", 60, 60),
    AlertRule("replication", "Time by which a slave is behind its master", "s", 30, 60),
    AlertRule("disk", "Fill level of an engine's disk: 1 filling, 2 early deletion, 3 full", "", 1, 0),
)
NAMES = tuple(rule.name for rule in DEFAULTS)
CAUSES: Mapping[str, tuple[str, ...]] = {
    "buffer": ("engine",), "refused": ("engine",), "replication": ("engine",), "lag_messages": ("lag",),
}  # fmt: skip
"""Rules whose alert has the same cause as an alert of another rule: of the engine's, or of the same subject's."""


def measure(sample: Sample) -> list[Measured]:
    """The value of every rule for each subject that the sample has. What is not in it is not known now."""
    found = [*_engine(sample), *_refused(sample)]
    for name, figure, say in _BY_FIGURE:
        for key, value in sample.items():
            if key.name == figure and not math.isnan(value):
                found.append(Measured(name, key.subject, value, say(key.subject.partition(":")[2], value)))
    return found


def _engine(sample: Sample) -> Iterable[Measured]:
    answers = sample.get(SeriesKey(ALL, ANSWERS))
    if answers is not None:
        yield Measured("engine", ALL, 1.0 - answers, "An engine does not answer the console: see the map.")


def _refused(sample: Sample) -> Iterable[Measured]:
    refused, sent = (sample.get(SeriesKey(ALL, name)) for name in ("refused", "in"))
    if refused is None or sent is None:
        return
    whole = refused + sent
    share = 100 * refused / whole if whole >= LEAST_MESSAGES_S else 0.0
    yield Measured("refused", ALL, share, f"{share:.1f} % of the messages sent are refused: {refused:,.1f} per second.")


_BY_FIGURE: tuple[tuple[str, str, Callable[[str, float], str]], ...] = (
    ("lag", "lag_s", lambda name, value: f"Group {name} is {amount(value, 's')} behind."),
    ("lag_messages", "lag", lambda name, value: f"Group {name} is {amount(value, 'messages')} behind."),
    ("buffer", "buffer_s", lambda name, value: f"A message waits in a fallback buffer for {amount(value, 's')}."),
    ("replication", "replica_gap_s", lambda name, value: f"Slave {name} is {amount(value, 's')} behind its master."),
    ("disk", "disk_level", lambda name, value: f"The disk of broker group {name} {LEVELS[min(3, max(0, int(value)))]}."),
)  # fmt: skip


def is_caused_by(rule: str, subject: str, others: Iterable[tuple[str, str]]) -> bool:
    """Whether one of the other alerts, (rule, subject), has the same cause and is told already."""
    causes = CAUSES.get(rule, ())
    return any(name in causes and (of in (subject, ALL)) for name, of in others)
