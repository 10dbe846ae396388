"""Pulls deliveries. Acknowledgements are buffered and sent with the next pull."""

import threading
import time
from collections.abc import Callable

from penstock_client.backoff import backoff_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Ack, Code, Delivery, PullRequest, Verdict, consumer_thrift
from penstock_client.credential import CredentialMint
from penstock_client.errors import CallFailed, PullError
from penstock_client.options import Endpoints, Options, parse_endpoints
from penstock_client.pool import Pool

ACK_BYTES = 120  # estimated size of one acknowledgement in a request
SOCKET_MARGIN_S = 2.0


class Consumer:
    """One member of a group. Any number of members share the group's messages, without assignment.

    One thread pulls at a time; acknowledge from any thread. What is pulled and not acknowledged is redelivered, with
    `attempt` one higher, after its invisible time. `close()` delivers the acknowledgements that still wait here.

    Args:
        topics: None: all topics of the group's definition.
        invisible_ms: duration of the lease of a delivery; None: the group's setting.

    Attributes:
        acks_refused: acknowledgements that were late or invalid: their messages are redelivered.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        app: str,
        key_id: str,
        secret: str | bytes,
        group: str,
        topics: list[str] | None = None,
        *,
        invisible_ms: int | None = None,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self._pool = Pool(parse_endpoints(endpoints), consumer_thrift.Consumer, self._options)
        self._mint = CredentialMint(app, key_id, secret, self._options.credential_ms)
        self._group = group
        self._topics = topics
        self._invisible_ms = invisible_ms
        self._acks: list[Ack] = []
        self._lock = threading.Lock()
        self._pulling = threading.Lock()
        self.acks_refused = 0

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pull(self, max_messages: int = 32, *, wait_ms: int = 20_000, max_bytes: int | None = None) -> list[Delivery]:
        """The next deliveries; empty when none came within `wait_ms`. Retries at other proxies until the deadline
        option.

        Raises:
            PullError: refused (wrong credential, group or topic), or no proxy answered before the deadline.
            ContractError: the endpoint is not a consumer proxy.
        """
        with self._pulling:
            return self._pull(max_messages, wait_ms, max_bytes)

    def done(self, delivery: Delivery) -> None:
        self._acknowledge(delivery, Verdict.DONE)

    def retry(self, delivery: Delivery, delay_ms: int | None = None, reason: str | None = None) -> None:
        """Request redelivery after `delay_ms` or the group's back-off."""
        self._acknowledge(delivery, Verdict.RETRY, delay_ms, reason)

    def reject(self, delivery: Delivery, reason: str | None = None) -> None:
        """Send it to the dead-letter topic now; the reason is stored with it."""
        self._acknowledge(delivery, Verdict.REJECT, None, reason)

    def extend(self, delivery: Delivery, delay_ms: int) -> None:
        """Extend its lease by `delay_ms`. Like all verdicts it travels with the next `pull` or `flush`."""
        self._acknowledge(delivery, Verdict.EXTEND, delay_ms)

    def flush(self) -> None:
        """Deliver the waiting acknowledgements now, without taking messages."""
        with self._pulling:
            if self._acks:
                self._pull(0, 0, None)

    def run(
        self,
        handle: Callable[[Delivery], int | None],
        stop: threading.Event,
        *,
        max_messages: int = 32,
        wait_ms: int = 5_000,
    ) -> None:
        """Pull and handle until `stop` is set, then deliver the last acknowledgements.

        `handle` returns a `Verdict`, or None for DONE. If it raises, the message is retried with the exception as
        reason.
        """
        while not stop.is_set():
            for delivery in self.pull(max_messages, wait_ms=wait_ms):
                try:
                    verdict, reason = handle(delivery), None
                except Exception as error:
                    verdict, reason = Verdict.RETRY, f"{type(error).__name__}: {error}"
                self._acknowledge(delivery, Verdict.DONE if verdict is None else verdict, None, reason)
        self.flush()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._pool.close()

    def _acknowledge(
        self, delivery: Delivery, verdict: int, delay_ms: int | None = None, reason: str | None = None
    ) -> None:
        ack = Ack(receipt=delivery.receipt, verdict=verdict or None, delay_ms=delay_ms, reason=reason)
        with self._lock:
            self._acks.append(ack)

    def _pull(self, max_messages: int, wait_ms: int, max_bytes: int | None) -> list[Delivery]:
        deadline_s = time.monotonic() + (wait_ms + self._options.deadline_ms) / 1000
        code, reason, failures, due_s = Code.UNAVAILABLE, "no proxy could be reached before the deadline", 0, 0.0
        while True:
            now_s = time.monotonic()
            start_s = max(now_s, due_s, self._pool.usable_at_s())
            if start_s >= deadline_s:
                raise PullError(code, reason)
            if start_s > now_s:
                time.sleep(start_s - now_s)
                continue
            with self._lock:
                acks = list(self._acks)
            request = PullRequest(
                credential=self._mint.credential(),
                group=self._group,
                topics=self._topics,
                max_messages=max_messages,
                max_bytes=max_bytes,
                wait_ms=wait_ms,
                acks=acks or None,
                invisible_ms=self._invisible_ms,
            )
            try:
                response, endpoint = self._pool.call(
                    "pull",
                    request,
                    wait_ms / 1000 + SOCKET_MARGIN_S,
                    size=len(acks) * ACK_BYTES,
                    hello=self._hello(request),
                )
            except CallFailed as failure:
                code, reason = Code.UNAVAILABLE, str(failure)
                continue
            action = action_of(response.code)
            if action is Action.DONE:
                self._pool.praise(endpoint)
                self._settle(acks, response.ack_results)
                return response.deliveries
            code, reason = response.code, response.error or "no reason given"
            if action is Action.REFUSED:
                raise PullError(code, reason)
            failures += 1
            if action is Action.ELSEWHERE:
                self._pool.set_aside(endpoint)
            else:
                pause_s = backoff_s(failures, self._options.backoff_first_ms, self._options.backoff_max_ms)
                due_s = time.monotonic() + max((response.retry_after_ms or 0) / 1000, pause_s)

    def _hello(self, request: PullRequest) -> PullRequest:
        return PullRequest(credential=request.credential, group=request.group, topics=request.topics, max_messages=0)

    def _settle(self, acks: list[Ack], results: list) -> None:
        """Drop settled acknowledgements; the others go with the next pull."""
        again = []
        for ack, result in zip(acks, results, strict=False):
            action = action_of(result.code)
            if action is Action.REFUSED:
                self.acks_refused += 1
            elif action is not Action.DONE:
                again.append(ack)
        with self._lock:
            self._acks = again + self._acks[len(acks) :]
