"""Slows down connections that present credentials in vain: each answer beyond the first few waits, longer from time to time.

A connection has one call in work, so its holder can ask no faster; whoever opens another one pays for that. Nobody else is slowed.
"""

FREE = 5
PAUSE_S_FIRST, PAUSE_S_MAX = 0.1, 2.0
CONNECTIONS_MAX = 10_000


class AuthThrottle:
    """Failed attempts by connection, as its peer's address and port tell it; the oldest are forgotten at a bound."""

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}
        self.attempts = 0

    def failed(self, peer: str) -> float:
        """Another attempt has failed: for how many seconds its answer is to be kept back."""
        self.attempts += 1
        count = self._failed.pop(peer, 0) + 1
        self._failed[peer] = count
        if len(self._failed) > CONNECTIONS_MAX:
            del self._failed[next(iter(self._failed))]
        return 0.0 if count <= FREE else min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** min(count - FREE - 1, 10))
