"""The loop of `Consumer.run`: pull, handle, acknowledge in time, and ride through outages."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock_client.backoff import backoff_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code, Delivery, Verdict
from penstock_client.errors import PenstockError, PullError
from penstock_client.held import HeldDelivery, HeldLeases
from penstock_client.options import Options

if TYPE_CHECKING:
    from penstock_client.consumer import Consumer

Handler = Callable[[Delivery], int | None]
WAITS_FOR = {Code.UNKNOWN_TOPIC, Code.UNKNOWN_GROUP}  # refusals that end when an operator defines what is missing


VERDICTS = (Verdict.DONE, Verdict.RETRY, Verdict.REJECT)


class RunLoop:
    """One run. A second thread acknowledges and extends while handlers work."""

    def __init__(
        self,
        consumer: "Consumer",
        options: Options,
        handle: Handler,
        stop: threading.Event,
        most: int,
        wait_ms: int,
        workers: int,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers {workers}: invalid: use 1 or more")
        self._consumer = consumer
        self._options = options
        self._handle = handle
        self._stop = stop
        self._most = most
        self._wait_ms = wait_ms
        self._held = HeldLeases(options.extend_ms_max / 1000, workers)
        self._pool = ThreadPoolExecutor(workers, "penstock-worker") if workers > 1 else None
        self._fatal: BaseException | None = None  # of a handler: what is no Exception ends the run
        self._ended = threading.Event()
        self._served_s = time.monotonic()
        self._failures = 0

    def run(self) -> None:
        keeper = threading.Thread(target=self._keep, name="penstock-leases", daemon=True)
        keeper.start()
        try:
            while not self._is_stopped():
                self._start()
                if self._consumer._wait_for_room(self._held) and not self._is_stopped():
                    self._pull()
        finally:
            self._consumer._wait_until_idle(self._held)  # the keeper extends the leases of the handlers in progress
            self._ended.set()
            keeper.join()
            if self._pool:
                self._pool.shutdown()
            self._consumer._release(self._held)
        if self._fatal:
            raise self._fatal
        self._consumer.flush()

    def _is_stopped(self) -> bool:
        return self._stop.is_set() or self._fatal is not None

    def _start(self) -> None:
        """Begin to handle what waits, as far as workers are free."""
        while not self._is_stopped() and (begun := self._consumer._begin(self._held)):
            if self._pool:
                self._pool.submit(self._work, begun)
            else:
                self._work(begun)

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

    def _work(self, begun: HeldDelivery) -> None:
        began_s = time.monotonic()
        reason = None
        try:
            given = self._handle(begun.delivery)
            verdict = Verdict.DONE if given is None else given
            if verdict not in VERDICTS:
                raise ValueError(f"the handler returned {verdict!r}: use DONE, RETRY, REJECT or None")
        except BaseException as error:
            verdict, reason = Verdict.RETRY, f"{type(error).__name__}: {error}"
            if not isinstance(error, Exception):
                self._fatal = error
        took_s = time.monotonic() - began_s
        try:
            self._options.metrics.handled(begun.delivery, verdict, took_s)  # before its end, which a stop waits for
        finally:
            self._consumer._end(self._held, begun, verdict, reason, took_s)

    def _keep(self) -> None:
        while not self._ended.wait(self._held.look_s):
            try:
                self._consumer._keep(self._held, self._ended)
            except PenstockError:
                pass  # the next look or pull tries again
