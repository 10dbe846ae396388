"""One range of messages in flight."""

from engine.delivery.progress import COUNTER_BITS, DUE_STEP_BITS, NONE_YOUNG, YOUNG_STEPS, StoredRange

NEVER = (1 << 63) - 1
"""Due time of a range that never expires."""


class InFlightRange:
    """Consecutive messages in one state.

    Attributes:
        lease: their last lease; 0: none, or an unknown one from before a restart.
        attempt: number of deliveries so far.
        first_lease: their first lease; 0: from before a restart.
        is_restored: leased before a restart; then `first_lease` to `lease` are the numbers that the lease may have.
        ready: the lease has expired. The previous holder may still acknowledge until the range is leased again.
        is_withheld: its holder has given it back by RETRY, and its delay runs.
    """

    __slots__ = ("attempt", "due_ms", "end", "first", "first_lease", "is_restored", "is_withheld", "lease", "ready")

    def __init__(
        self, first: int, end: int, lease: int, attempt: int, due_ms: int, ready: bool = False, first_lease: int = 0
    ) -> None:
        self.first, self.end = first, end
        self.lease, self.attempt = lease, attempt
        self.due_ms, self.ready = due_ms, ready
        self.first_lease = first_lease
        self.is_restored = self.is_withheld = False

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for another message of its key, and for no lease."""
        return not self.ready and not self.lease and self.due_ms == NEVER

    def part(self, first: int, end: int) -> "InFlightRange":
        """Return a copy for first..end."""
        part = InFlightRange(first, end, self.lease, self.attempt, self.due_ms, self.ready, self.first_lease)
        part.is_restored, part.is_withheld = self.is_restored, self.is_withheld
        return part

    def is_of(self, lease: int, foreign: bool) -> bool:
        """Whether this lease holds it. A `foreign` one, of another process, holds also what has an unknown lease."""
        if self.lease == lease:
            return True
        return foreign and (not self.lease or (self.is_restored and self.first_lease <= lease <= self.lease))

    def give_to(self, lease: int) -> None:
        """Make it a lease's; 0: nobody's."""
        self.lease = lease
        if self.is_restored:
            self.is_restored, self.first_lease = False, 0

    def restore(self, oldest_ms: int, newest_ms: int) -> None:
        """Make it a lease's that was made between these lease times."""
        self.first_lease, self.lease = oldest_ms << COUNTER_BITS, (newest_ms + 1 << COUNTER_BITS) - 1
        self.is_restored = True

    def stored(self, now_ms: int, young_ms: int = NONE_YOUNG) -> StoredRange:
        """Return its stored form at this monotonic time.

        Args:
            young_ms: leases of this lease time or a later one are young: they count as no attempt and end soon.
        """
        if self.ready or self.due_ms == NEVER or self.due_ms <= now_ms:
            return StoredRange(self.first, self.end, self.attempt)
        due = -(-(self.due_ms - now_ms) >> DUE_STEP_BITS)
        oldest, newest_ms = self.first_lease if self.is_restored else self.lease, self.lease >> COUNTER_BITS
        attempt = self.attempt
        if newest_ms >= young_ms and not self.is_withheld:
            due, attempt = min(due, YOUNG_STEPS), max(attempt - 1, 0)
        return StoredRange(self.first, self.end, attempt, due, oldest >> COUNTER_BITS, newest_ms, self.is_withheld)

    def is_continued_by(self, other: "InFlightRange") -> bool:
        """Whether the withheld range after it differs in its offsets only."""
        return (
            other.first == self.end
            and other.is_withheld == self.is_withheld
            and (other.lease, other.first_lease, other.is_restored) == (self.lease, self.first_lease, self.is_restored)
            and (other.due_ms, other.attempt) == (self.due_ms, self.attempt)
        )

    def __repr__(self) -> str:
        state = "ready" if self.ready else f"due {self.due_ms}"
        return f"InFlightRange({self.first}..{self.end} lease {self.lease} attempt {self.attempt} {state})"
