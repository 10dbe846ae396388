"""Circuit breaker of one broker: closed, open, half open. Pure: from events and times it decides what may be sent.

    closed ── link lost, or an answer overdue ──→ open ── link is back, or it answers ──→ half open ──→ closed
                                                   ↑──────────── link lost, or overdue ────────┘

There are two kinds of requests. A request that another broker could take too is routed away at the first sign, because
a wrong guess costs nothing; such requests return gradually, by `share`. A request that only this broker can take is
sent until the broker has been silent for `patience_s` or its link is down: a disk stall of 100 ms must not reject
calls.

The bound adapts to the broker like the retransmission timer of TCP: smoothed time plus four times its smoothed
deviation (Jacobson, "Congestion avoidance and control", 1988; RFC 6298).
"""

from dataclasses import dataclass
from enum import Enum

SHARE_ALL = 16


class State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True)
class BreakerConfig:
    """
    Attributes:
        bound_s_min: an answer is never late before this time. More isolates later; less trips on a busy machine.
        bound_s_max: an answer is always late after this time.
        patience_s: silence after which requests that only this broker can take are rejected too.
        step_s: duration of each step of the return, with shares 1/16, 1/8, 1/4, 1/2. Longer spares a broker with cold
            caches.
    """

    bound_s_min: float = 0.030
    bound_s_max: float = 1.0
    patience_s: float = 1.0
    step_s: float = 0.1


class Breaker:
    """Times are seconds of one monotonic clock.

    Attributes:
        state, reason: the reason says as a sentence why the breaker is not closed.
        since_s: start of the state. opened: number of times that it has opened.
        share: sixteenths of the requests that could go elsewhere which may be sent here.
        refusing: no request may be sent.
    Invariant: `share` is 0 when open, 16 when closed; `refusing` only when open.
    """

    def __init__(self, now_s: float, config: BreakerConfig = BreakerConfig()) -> None:
        self._config = config
        self.state, self.reason, self.since_s, self.opened = State.OPEN, "not connected yet", now_s, 0
        self.share, self.refusing = 0, True
        self._linked = self._was_linked = False
        self._smoothed_s = self._deviation_s = 0.0
        self._next_step_s = 0.0

    @property
    def bound_s(self) -> float:
        """Time after which a missing answer is late."""
        config = self._config
        return min(config.bound_s_max, max(config.bound_s_min, self._smoothed_s + 4 * self._deviation_s))

    def link_up(self, now_s: float) -> None:
        """Note an established link. The first link closes the breaker at once: there is nothing to recover from."""
        first, self._linked, self._was_linked = not self._was_linked, True, True
        if self.state is State.OPEN:
            self._readmit(now_s, SHARE_ALL if first else 1)

    def link_down(self, now_s: float, reason: str) -> None:
        """Note a link that was refused, reset or closed: nothing can be sent."""
        self._linked = False
        self._open(now_s, reason)
        self.refusing = True

    def look(self, now_s: float, slowest_s: float | None, owed_s: float | None) -> None:
        """Take what happened since the last call, which should be a few milliseconds ago.

        Args:
            slowest_s: time of the slowest answer since then; None: no answer came.
            owed_s: age of the oldest request without an answer; None: there is none.
        """
        if slowest_s is not None:
            self._learn(slowest_s)
        if not self._linked:
            return
        if owed_s is not None and owed_s > self.bound_s:
            self._open(now_s, "does not answer")
            self.refusing = owed_s > self._config.patience_s
        elif self.state is State.OPEN:
            if slowest_s is not None or owed_s is None:
                self._readmit(now_s, 1)
        elif self.state is State.HALF_OPEN and now_s >= self._next_step_s:
            self._readmit(now_s, self.share * 2)

    def _open(self, now_s: float, reason: str) -> None:
        self.share = 0
        if self.state is not State.OPEN:
            self.state, self.since_s = State.OPEN, now_s
            self.opened += 1
        self.reason = reason

    def _readmit(self, now_s: float, share: int) -> None:
        self.share, self.refusing = share, False
        self._next_step_s = now_s + self._config.step_s
        state = State.CLOSED if share == SHARE_ALL else State.HALF_OPEN
        if self.state is not state:
            self.state, self.since_s = state, now_s
        if state is State.CLOSED:
            self.reason = ""

    def _learn(self, slowest_s: float) -> None:
        """Adapt the bound.

        The gains are below TCP's: up to 200 calls per second, and one late answer must not raise it for long.
        """
        sample_s = min(slowest_s, 2 * self.bound_s)
        self._deviation_s += (abs(sample_s - self._smoothed_s) - self._deviation_s) / 32
        self._smoothed_s += (sample_s - self._smoothed_s) / 64
