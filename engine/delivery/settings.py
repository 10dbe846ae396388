"""Bounds and defaults of delivery."""

from dataclasses import dataclass, replace

RANGE_BYTES_MAX = 16
"""Of a range in a progress record."""


@dataclass(frozen=True)
class DeliverySettings:
    """Bounds of all state that grows with the behaviour of consumers."""

    in_flight_max: int = 65_536
    """Messages in flight per group and queue; at the bound only expired ones are dispatched again.

    Withheld ones count only with order by key.
    """
    ranges_max: int = 16_384
    """Leases and acknowledged holes per group and queue. More costs memory and makes progress records longer."""
    withheld_max: int = 1_048_576
    """Messages per group and queue that RETRY has given back and whose delay runs. They are not in flight."""
    withheld_ranges_max: int = 262_144
    """Ranges of them. Each costs 48 bytes of memory and some 6 in a progress record, which has to fit into a segment."""
    withheld_ranges_all_max: int = 2_097_152
    """Withheld ranges of all groups, above which a queue with `ranges_max` ranges dispatches nothing new."""
    waiting_max: int = 4_096
    """Messages per group and queue that wait for an earlier one of their key.

    At the bound no new message of the queue is dispatched. More lets other keys advance further past a slow one.
    """
    pull_messages_max: int = 65_536
    """Maximum number of messages per pull; a larger request is reduced to it."""
    pull_bytes_max: int = 15 << 20
    """Maximum bytes per pull, below the largest answer that a Thrift client reads."""
    pull_bytes_default: int = 1 << 20
    wait_ms_max: int = 30_000
    fetch_wait_ms: int = 2_000
    """Wait of a pull without wait time while its records are fetched from cold segments."""
    parked_max: int = 100_000
    """Waiting pulls per engine; each costs about 1 KiB. Further ones are answered empty at once."""
    room_wait_ms: int = 2_000
    """Wait of a pull without wait time while its link has no room for its first message."""
    invisible_ms_default: int = 30_000
    invisible_ms_max: int = 12 * 3600 * 1000
    shared_filters_min: int = 24
    """Groups with a filter on one topic from which on one index serves them together.

    With fewer groups, separate filters cost less.
    """
    filter_tests_max: int = 100_000
    """Tests of filters per loop turn: about 4 ms.

    More passes over unwanted messages sooner and delays everything else.
    """
    progress_ms: int = 200
    """Least time between two progress records per queue. More redelivers more after a crash, less writes more."""
    quantum_bytes: int = 64 << 10
    """Bytes that a queue may dispatch per turn. Less is fairer and makes smaller reads."""
    older_us: int = 100
    """Time per pull for reads of older segments, after which the pull is answered with what it has.

    More makes larger answers of old messages and delays appends. The reference form cannot tell such reads from others
    and ignores the limit.
    """
    subscriptions_max: int = 1_024
    """Remembered sets of topics per group; beyond it the least recently used one is forgotten."""

    def fitting(self, record_bytes: int) -> "DeliverySettings":
        """Bound withheld ranges so that a progress record of them has at most `record_bytes`."""
        return replace(self, withheld_ranges_max=min(self.withheld_ranges_max, record_bytes // RANGE_BYTES_MAX))

    def faults(self) -> list[str]:
        """Return every violated rule at once."""
        return [f"{name}: at least 1" for name, value in vars(self).items() if value < 1]
