"""The figures of a report on traffic. Pure values."""

from typing import NamedTuple


class TrafficStep(NamedTuple):
    """One step of the time axis. Percentiles are None without messages whose time of sending is known."""

    at_s: int
    messages: int
    size_bytes: int
    p50_ms: int | None
    p99_ms: int | None


class NamedCount(NamedTuple):
    name: str
    messages: int


class TopicKeys(NamedTuple):
    """Keys of a topic: how many there are, how many messages have one, and the most frequent of them."""

    distinct: int
    messages: int
    top: list[NamedCount]


class TopicTraffic(NamedTuple):
    """
    Attributes:
        size_bytes: of bodies.
        first_s, last_s: the first and the last minute with a message, Unix seconds.
        peak_messages, peak_bytes: of the largest minute.
        timed: messages whose time of sending is known; the percentiles are theirs.
        keys: number of different keys; keyless: messages without one.
        queues: by number; top_keys, applications: the largest first.
        steps: those with messages, in order.
    """

    topic: str
    messages: int
    size_bytes: int
    first_s: int
    last_s: int
    peak_messages: int
    peak_bytes: int
    timed: int
    p50_ms: int | None
    p90_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    keys: int
    keyless: int
    queues: list[NamedCount]
    top_keys: list[NamedCount]
    applications: list[NamedCount]
    steps: list[TrafficStep]

    @property
    def span_s(self) -> int:
        return self.last_s - self.first_s + 60

    @property
    def queue_skew(self) -> float:
        """The largest queue's messages over the mean of all that have any; 1.0: even."""
        counts = [each.messages for each in self.queues]
        return max(counts) * len(counts) / sum(counts)


class TrafficFigures(NamedTuple):
    """
    Attributes:
        step_s: length of a step.
        topics: those with messages, the most bytes first; `empty`: names of the others.
    """

    step_s: int
    topics: list[TopicTraffic]
    empty: list[str]
