"""Finished spans on their way to the exporter: records of a call, put into a bounded queue, in a microsecond each."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.tracing.trace_context import SpanParent

QUEUE_MAX = 4096
"""Records that wait. More rides out a longer outage of the collector, at some 1 KiB each; what comes beyond is lost."""

SERVER, CLIENT, PRODUCER, CONSUMER = "SERVER", "CLIENT", "PRODUCER", "CONSUMER"


@dataclass(slots=True)
class SpanRecord:
    """One span with its begin and end.

    Attributes:
        kind: a name of OpenTelemetry's SpanKind.
        parent: a span of another process, or a record that was put before this one; None: it begins a trace.
        fault: why it failed; empty: it did not.
        made: the span's place in its trace, once the exporter has it.
    """

    name: str
    kind: str
    parent: "SpanParent | SpanRecord | None"
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    made: Any = None


class SpanQueue:
    """
    Args:
        ratio: of calls without a sampled parent that are traced all the same.
        chance: a random number from 0 to 1.
        on_put: called when a record has come; must not block.
    Attributes:
        lost: records that found the queue full.
    """

    def __init__(
        self,
        ratio: float,
        chance: Callable[[], float],
        on_put: Callable[[], None] = lambda: None,
        size_max: int = QUEUE_MAX,
    ) -> None:
        self.ratio, self._chance, self._on_put, self._size_max = ratio, chance, on_put, size_max
        self._records: deque[SpanRecord] = deque()
        self.lost = 0

    def __len__(self) -> int:
        return len(self._records)

    def is_chosen(self) -> bool:
        """Whether a call without a sampled parent is traced."""
        return self.ratio > 0 and self._chance() < self.ratio

    def put(self, record: SpanRecord) -> None:
        """Take a record; never blocks, never fails."""
        if len(self._records) >= self._size_max:
            self.lost += 1
            return
        self._records.append(record)
        self._on_put()

    def take(self) -> SpanRecord | None:
        """The oldest record."""
        return self._records.popleft() if self._records else None
