# cython: annotation_typing=False
"""Outcomes of one topic's sends over the last minutes. The hot path adds to them natively, once per call and topic."""

SAMPLES = 30


class TopicSends:
    """Messages of one topic with an outcome.

    Attributes:
        stored, failed: since the proxy's start.
    """

    __slots__ = ("_samples", "failed", "stored")

    def __init__(self) -> None:
        self.stored = self.failed = 0
        self._samples = [(0, 0)]

    def add(self, stored: int, failed: int) -> None:
        """Count so many messages more."""
        self.stored += stored
        self.failed += failed

    def sample(self) -> None:
        """Begin the next part of the window. A topic that is idle for all of it keeps one sample only."""
        now = self.stored, self.failed
        if self._samples[0] == now:
            self._samples = [now]
            return
        self._samples.append(now)
        del self._samples[:-SAMPLES]

    @property
    def recent(self) -> tuple[int, int]:
        """(stored, failed) within the window."""
        stored, failed = self._samples[0]
        return self.stored - stored, self.failed - failed
