"""The brake on sign-ins: after repeated failures by a key, further attempts by it are not looked at for a while.

A key names what an attacker would have to change: `name NAME from ADDRESS`, `address ADDRESS`, `browser ID`. The key `name
NAME` is for guesses from many addresses: it takes more failures, and browsers that have signed in before are not asked
for it, so that strangers cannot keep an account's owner out.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

FREE, FREE_BY_NAME = 5, 50
PAUSE_S_FIRST, PAUSE_S_MAX = 1.0, 300.0
FORGET_S = 3_600.0
KEYS_MAX = 10_000


class SignInBrake:
    """Counts failures by key. At most KEYS_MAX keys, the oldest failures go first.

    Args:
        monotonic_s: seconds that never step back.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()  # key -> failures, time of the last one
        self._lock = threading.Lock()

    def wait_s(self, *keys: str) -> float:
        """Seconds until an attempt by all these keys is looked at; 0.0: now."""
        now = self._monotonic_s()
        with self._lock:
            return max(0.0, *(self._ready_at(key) - now for key in keys))

    def failed(self, *keys: str) -> None:
        """Note a failed attempt."""
        now = self._monotonic_s()
        with self._lock:
            for key in keys:
                count, last = self._failed.pop(key, (0, now))
                self._failed[key] = (1 if now - last > FORGET_S else count + 1, now)
            while len(self._failed) > KEYS_MAX:
                self._failed.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key. Those of the address stay: one known password must not free the others."""
        with self._lock:
            self._failed.pop(key, None)

    def _ready_at(self, key: str) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        free = FREE_BY_NAME if key.startswith("name ") and " from " not in key else FREE
        return last + min(PAUSE_S_FIRST * 2 ** min(count - free, 20), PAUSE_S_MAX) if count >= free else 0.0
