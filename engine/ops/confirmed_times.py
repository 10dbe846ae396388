"""Times of confirmation, from samples: when all in-sync brokers had what was stored up to a time.

A sample is taken each SAMPLE_MS, whatever is stored meanwhile, so no message costs anything. What was stored before the
time of a sample lies below the log's end in it, and is confirmed once a later sample's confirmed position is not below
that end. So the answer is a span, at best as narrow as the interval.
"""

from bisect import bisect_left, bisect_right
from typing import Any

from engine.ops.checks import is_whole
from engine.ops.errors import RequestError

SAMPLE_MS = 100
FINE_MAX = 6_000
"""Samples that are kept as they are: 10 minutes of steady traffic. Samples in which nothing has changed take no room."""

COARSE_MS, COARSE_MAX = 10_000, 8_640
"""Of older ones one per COARSE_MS is kept, for a day of steady traffic."""

TIME_MAX = 1 << 62


class _Sample:
    """State from `first_ms` to `last_ms`: the log's end, the confirmed position, and the brokers in sync."""

    __slots__ = ("confirmed", "end", "first_ms", "in_sync", "last_ms")

    def __init__(self, at_ms: int, end: int, confirmed: int, in_sync: tuple[str, ...]) -> None:
        self.first_ms = self.last_ms = at_ms
        self.end, self.confirmed, self.in_sync = end, confirmed, in_sync


def _begin(sample: _Sample) -> int:
    return sample.first_ms


class ConfirmedTimes:
    """The samples of one broker while it leads. A clock that is set back, or another log, begins anew."""

    def __init__(self) -> None:
        self._coarse: list[_Sample] = []
        self._fine: list[_Sample] = []

    def __len__(self) -> int:
        return len(self._coarse) + len(self._fine)

    def note(self, at_ms: int, end: int, confirmed: int, in_sync: tuple[str, ...]) -> None:
        """Take a sample, at the wall clock's time by which messages are stored."""
        last = self._fine[-1] if self._fine else None
        if last is not None and (at_ms < last.last_ms or confirmed < last.confirmed or end < last.confirmed):
            self.clear()
            last = None
        if last is not None and (last.end, last.confirmed, last.in_sync) == (end, confirmed, in_sync):
            last.last_ms = at_ms
            return
        self._fine.append(_Sample(at_ms, end, confirmed, in_sync))
        if len(self._fine) > 2 * FINE_MAX:
            self._thin()

    def clear(self) -> None:
        """Forget all: this broker does not lead, or leads another log."""
        self._coarse.clear()
        self._fine.clear()

    def _thin(self) -> None:
        """Keep one of the older samples per COARSE_MS. What is left out makes spans wider and none of them wrong."""
        for each in self._fine[:-FINE_MAX]:
            if not self._coarse or each.first_ms >= self._coarse[-1].first_ms + COARSE_MS:
                self._coarse.append(each)
        del self._fine[:-FINE_MAX], self._coarse[:-COARSE_MAX]

    def of(self, stored_ms: int) -> dict[str, Any]:
        """The span in which a message was confirmed that was stored at this time.

        `by_ms`: at the latest then, by the brokers `in_sync`; without it, it is not confirmed yet. `after_ms`: not before;
        left out where the samples begin later than the message. {}: there is no sample.
        """
        samples = [*self._coarse, *self._fine]
        if not samples:
            return {}
        found: dict[str, Any] = {}
        with_it = bisect_right(samples, stored_ms, key=_begin)  # from here on the log has it
        if with_it < len(samples):
            end = samples[with_it].end
            by = next((each for each in samples[with_it:] if each.confirmed >= end), None)
            found = {} if by is None else {"by_ms": by.first_ms, "in_sync": list(by.in_sync)}
        if without_it := bisect_left(samples, stored_ms, key=_begin):
            end = samples[without_it - 1].end
            before = [each.last_ms for each in samples[without_it - 1 :] if each.confirmed <= end]
            found["after_ms"] = max(stored_ms, *before[-1:])
        return found

    def answer(self, request: dict[str, Any], now_ms: int) -> dict[str, Any]:
        """The verb `confirmed`, for messages that were stored at `stored_ms`. Raises RequestError."""
        stored_ms = request.get("stored_ms")
        if not is_whole(stored_ms, 0, TIME_MAX):
            raise RequestError("stored_ms: use Unix milliseconds")
        return {"confirmed": self.of(stored_ms)}
