"""The brake on sign-ins: after repeated failures of a name or an address, further attempts are not looked at for a while."""

import threading
from collections import OrderedDict
from collections.abc import Callable

FREE = 5
PAUSE_S_FIRST, PAUSE_S_MAX = 1.0, 300.0
FORGET_S = 3_600.0
KEYS_MAX = 10_000


class SignInBrake:
    """Counts failures by key; a key is a name or an address. At most KEYS_MAX keys, the oldest failures go first.

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

    def succeeded(self, name: str) -> None:
        """Forget the failures of a name. Those of the address stay: one known password must not free the others."""
        with self._lock:
            self._failed.pop(name, None)

    def _ready_at(self, key: str) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        return last + min(PAUSE_S_FIRST * 2 ** min(count - FREE, 20), PAUSE_S_MAX) if count >= FREE else 0.0
