"""Bounds and defaults of delivery."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeliverySettings:
    """Everything that grows with what consumers do has its bound here."""

    in_flight_max: int = 65_536
    """Messages of one queue that one group may hold unacknowledged; then only expired ones are handed out again."""
    ranges_max: int = 16_384
    """Leases and acknowledged holes of one queue of one group. More costs memory and makes progress records longer."""
    waiting_max: int = 4_096
    """Messages of one queue that wait for an earlier one of their key; then nothing new of the queue is handed out. More lets other keys
    flow further past a slow one."""
    pull_messages_max: int = 65_536
    """Of one pull; a greater wish is served with this."""
    pull_bytes_max: int = 15 << 20
    """Of one pull, below what a Thrift client can read in one answer."""
    pull_bytes_default: int = 1 << 20
    wait_ms_max: int = 30_000
    fetch_wait_ms: int = 2_000
    """How long a pull without waiting waits all the same while records that it may have are fetched from far behind the end."""
    parked_max: int = 100_000
    """Waiting pulls of the whole engine; each costs about 1 KiB. One more is answered empty at once."""
    invisible_ms_default: int = 30_000
    invisible_ms_max: int = 12 * 3600 * 1000
    shared_filters_min: int = 24
    """Groups with a filter on one topic from which on they are asked together. Fewer cost less each by itself."""
    filter_tests_max: int = 100_000
    """What filters may do in one loop turn: about 4 ms. More gets through what is passed over sooner and holds up all others."""
    progress_ms: int = 200
    """Least time between two progress records of one queue. More redelivers more after a crash, less writes more."""
    quantum_bytes: int = 64 << 10
    """What a queue may give before the next queue has its turn. Less is fairer and makes smaller reads."""
    older_us: int = 100
    """What reading older segments may take of one pull, which then is answered with what it has. More makes larger answers of
    old messages, and those who append wait longer behind each. The twin cannot tell such reads from others and reads on."""
    subscriptions_max: int = 1_024
    """Remembered sets of topics of one group; beyond it the one not used for longest is forgotten."""

    def faults(self) -> list[str]:
        """Every violated rule at once."""
        return [f"{name}: at least 1" for name, value in vars(self).items() if value < 1]
