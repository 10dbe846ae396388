"""The thread that watches: a sample every 10 seconds, at whole multiples of them."""

import logging
import threading

from common.clock import Clock
from common.errors import PenstockError
from common.limited_log import LimitedLog
from console.database.series_history import FINE_S
from console.watching.sampler import HistorySampler

limited = LimitedLog(logging.getLogger("penstock.console"))


class Watch:
    def __init__(self, sampler: HistorySampler, clock: Clock) -> None:
        self._sampler, self._clock = sampler, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and write the points that are not written yet."""
        self._stop.set()
        self._thread.join(timeout=5 * FINE_S)
        self._sampler.flush()

    def _run(self) -> None:
        while not self._stop.wait(FINE_S - self._clock.now_ms() / 1000 % FINE_S):
            self.once()

    def once(self) -> None:
        """One round. Errors are logged: the next round may succeed."""
        try:
            self._sampler.look(self._clock.now_ms() / 1000)
        except PenstockError as error:
            limited.warning("watch: this sample is missing: %s", error)
        except Exception:
            limited.exception("watch: a round failed")
