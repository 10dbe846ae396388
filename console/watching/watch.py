"""The thread that watches: a sample every 10 seconds, at whole multiples of them; and the one that sends notices."""

import logging
import threading

from common.clock import Clock
from common.errors import PenstockError
from common.limited_log import LimitedLog
from console.database.series_history import FINE_S
from console.watching.alert_watch import AlertWatch
from console.watching.courier import NoticeCourier
from console.watching.sampler import HistorySampler

limited = LimitedLog(logging.getLogger("penstock.console"))


COURIER_S = 1.0


class Watch:
    def __init__(self, sampler: HistorySampler, alerts: AlertWatch, courier: NoticeCourier, clock: Clock) -> None:
        self._sampler, self._alerts, self._courier, self._clock = sampler, alerts, courier, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._sending = threading.Thread(target=self._send, name="notices", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._sending.start()

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
            self._alerts.look(self._sampler.look(self._clock.now_ms() / 1000))
        except PenstockError as error:
            limited.warning("watch: this sample is missing: %s", error)
        except Exception:
            limited.exception("watch: a round failed")

    def _send(self) -> None:
        """A thread of its own: a target that answers slowly delays no sample."""
        while not self._stop.wait(COURIER_S):
            try:
                self._courier.round()
            except PenstockError as error:
                limited.warning("notices: not sent now: %s", error)
            except Exception:
                limited.exception("notices: a round failed")
