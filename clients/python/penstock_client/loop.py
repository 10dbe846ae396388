"""The loop of `Consumer.run`: pull, handle, acknowledge in time, and ride through outages."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock_client.backoff import backoff_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code, Delivery, Verdict
from penstock_client.errors import PenstockError, PullError
from penstock_client.held import HeldLeases
from penstock_client.options import Options

if TYPE_CHECKING:
    from penstock_client.consumer import Consumer

Handler = Callable[[Delivery], int | None]
WAITS_FOR = {Code.UNKNOWN_TOPIC, Code.UNKNOWN_GROUP}  # refusals that end when an operator defines what is missing


class RunLoop:
    """One run. A second thread acknowledges and extends while a handler works."""

    def __init__(
        self, consumer: "Consumer", options: Options, handle: Handler, stop: threading.Event, most: int, wait_ms: int
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._handle = handle
        self._stop = stop
        self._most = most
        self._wait_ms = wait_ms
        self._held = HeldLeases(options.extend_ms_max / 1000)
        self._ended = threading.Event()
        self._served_s = time.monotonic()
        self._failures = 0

    def run(self) -> None:
        keeper = threading.Thread(target=self._keep, name="penstock-leases", daemon=True)
        keeper.start()
        try:
            while not self._stop.is_set():
                self._pull()
                self._handle_all()
        finally:
            self._ended.set()
            keeper.join()
            self._consumer._release(self._held)
        self._consumer.flush()

    def _pull(self) -> None:
        try:
            self._consumer._pull_held(self._held, self._most, self._wait_ms, self._stop)
        except PullError as error:
            self._failed(error)
            return
        if self._stop.is_set():
            return
        if self._failures:
            self._options.tell(f"pulling again after {time.monotonic() - self._served_s:.0f} s")
        self._failures = 0
        self._served_s = time.monotonic()

    def _failed(self, error: PullError) -> None:
        """Tell of the outage and pause. Raises the error if waiting cannot help, or was in vain for too long."""
        if action_of(error.code) is Action.REFUSED and error.code not in WAITS_FOR:
            raise error
        down_s = time.monotonic() - self._served_s
        if 0 < self._options.outage_ms_max / 1000 <= down_s:
            raise error
        self._failures += 1
        if self._failures == 1:
            self._options.tell(f"no pull succeeds, trying again: {error}")
        self._stop.wait(backoff_s(self._failures, self._options.backoff_first_ms, self._options.backoff_max_ms))

    def _handle_all(self) -> None:
        while not self._stop.is_set():
            delivery = self._consumer._begin(self._held)
            if delivery is None:
                return
            began_s = time.monotonic()
            try:
                verdict, reason = self._handle(delivery), None
            except Exception as error:
                verdict, reason = Verdict.RETRY, f"{type(error).__name__}: {error}"
            took_s = time.monotonic() - began_s
            verdict = Verdict.DONE if verdict is None else verdict
            self._consumer._end(self._held, delivery, verdict, reason, took_s)
            self._options.metrics.handled(delivery, verdict, took_s)

    def _keep(self) -> None:
        while not self._ended.wait(self._held.look_s):
            try:
                self._consumer._keep(self._held, self._ended)
            except PenstockError:
                pass  # the next look or pull tries again
