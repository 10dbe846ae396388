"""Auth throttle: delays the answers to repeated failed logins of a connection, with growing back-off.

A connection has one call in flight, so a client cannot try faster on it. Other connections are not delayed.
"""

import time
from collections.abc import Callable

from common.readiness import Note
from common.recent_count import SHOWN, RecentCount

FREE = 5  # failed attempts that are answered without delay
PAUSE_S_FIRST, PAUSE_S_MAX = 0.1, 2.0
CONNECTIONS_MAX = 10_000


class AuthThrottle:
    """Counts failed attempts by the connection's peer address and port, for at most CONNECTIONS_MAX connections."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._failed: dict[str, int] = {}
        self.attempts = 0
        self._recent = RecentCount(monotonic_s)

    def failed(self, peer: str) -> float:
        """Note a failed attempt and return the seconds by which to delay its answer."""
        self.attempts += 1
        self._recent.add()
        count = self._failed.pop(peer, 0) + 1
        self._failed[peer] = count
        if len(self._failed) > CONNECTIONS_MAX:
            del self._failed[next(iter(self._failed))]
        return 0.0 if count <= FREE else min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** min(count - FREE - 1, 10))

    def health(self) -> bool | str:
        """The condition of /readyz: a proxy that has lost the applications' keys refuses all of them, and is ready."""
        recent = self._recent.recent()
        return Note(f"{recent} calls with refused credentials in {SHOWN}") if recent else True
