"""Pulls deliveries. Acknowledgements are buffered and sent with the next pull."""

import threading
import time
from typing import Any

from penstock_client.attempts import PullAttempts
from penstock_client.codes import Action, action_of, name_of
from penstock_client.contract import Ack, Code, Delivery, PullRequest, Verdict, consumer_thrift
from penstock_client.credential import CredentialMint
from penstock_client.errors import CallFailed
from penstock_client.held import LEASE_UNKNOWN_S, HeldDelivery, HeldLeases
from penstock_client.loop import Handler, RunLoop
from penstock_client.options import Endpoints, Options, parse_endpoints
from penstock_client.pool import Endpoint, Pool

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
        unserved_topics: topics that the last pull named and that give nothing, with the reason of each.
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
        self._acked_s = 0.0  # when the oldest of them was given
        self._lock = threading.Lock()
        self._handled = threading.Condition(self._lock)  # a handler of a run has ended
        self._pulling = threading.Lock()
        self.acks_refused = 0
        self.unserved_topics: dict[str, str] = {}

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pull(self, max_messages: int = 32, *, wait_ms: int = 20_000, max_bytes: int | None = None) -> list[Delivery]:
        """The next deliveries; empty when none came within `wait_ms`. Retries at other proxies until the deadline
        option.

        Raises:
            PullError: refused (wrong credential, group or topic), or no proxy answered before the deadline.
            ContractError: no endpoint is a consumer proxy.
        """
        with self._pulling:
            response = self._pull(max_messages, wait_ms, max_bytes)
            return response.deliveries if response else []

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
        handle: Handler,
        stop: threading.Event,
        *,
        max_messages: int = 32,
        wait_ms: int = 5_000,
        workers: int = 1,
    ) -> None:
        """Pull and handle until `stop` is set, then give back what is left and deliver the last acknowledgements.

        `handle` returns a `Verdict`, or None for DONE. If it raises, the message is retried with the exception as
        reason. Leases are extended while messages wait or are handled; the rules are in clients/README.md.

        Args:
            max_messages: of one pull; less when the handler is slow.
            wait_ms: long poll of one pull; a stop may wait for it.
            workers: handlers at a time, of one key never more than one. With 1 the handler runs in the caller's thread.
        Raises:
            PullError: refused for good, or no pull succeeded for the option outage_ms_max; or the last
                acknowledgements could not be delivered after the stop.
            ContractError: no endpoint is a consumer proxy.
        """
        RunLoop(self, self._options, handle, stop, max_messages, wait_ms, workers).run()

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
            self._queue(ack)

    def _queue(self, ack: Ack) -> None:
        if not self._acks:
            self._acked_s = time.monotonic()
        self._acks.append(ack)

    # -- for RunLoop

    def _pull_held(self, held: HeldLeases, most: int, wait_ms: int, stop: threading.Event) -> None:
        with self._lock:
            count = held.wanted(most)
            # Beside handlers a pull waits for a sixth of a lease at most: the next one has to carry their extensions.
            wait_ms = wait_ms if held.is_idle else min(wait_ms, int(held.look_s * 1000))
        with self._pulling:
            response = self._pull(count, wait_ms, None, held=held, stop=stop)
            if response is not None:
                lease_s = (self._invisible_ms or response.invisible_ms or LEASE_UNKNOWN_S * 1000) / 1000
                with self._lock:
                    held.pulled(response.deliveries, lease_s, time.monotonic())

    def _begin(self, held: HeldLeases) -> HeldDelivery | None:
        with self._lock:
            return held.begin(time.monotonic())

    def _end(self, held: HeldLeases, begun: HeldDelivery, verdict: int, reason: str | None, took_s: float) -> None:
        ack = Ack(receipt=begun.delivery.receipt, verdict=verdict or None, reason=reason)
        with self._lock:  # one step, so that no extension follows the acknowledgement
            held.end(begun, took_s)
            self._queue(ack)
            self._handled.notify_all()

    def _wait_for_room(self, held: HeldLeases) -> bool:
        """Whether a pull may be made now; else blocks until a handler has ended."""
        with self._lock:
            return held.has_room or not self._handled.wait()

    def _wait_until_idle(self, held: HeldLeases) -> None:
        with self._lock:
            self._handled.wait_for(lambda: held.is_idle)

    def _keep(self, held: HeldLeases, ended: threading.Event) -> None:
        """Deliver acknowledgements and extensions if some are due."""
        now_s = time.monotonic()
        with self._lock:
            waits_s = now_s - self._acked_s if self._acks else 0.0
            is_due = waits_s >= held.look_s or held.is_due(now_s)
        if is_due:
            with self._pulling:
                self._pull(0, 0, None, held=held, stop=ended)

    def _release(self, held: HeldLeases) -> None:
        with self._lock:
            for delivery in held.release():
                self._queue(Ack(receipt=delivery.receipt, verdict=Verdict.RELEASE))

    # -- one pull

    def _pull(
        self,
        max_messages: int,
        wait_ms: int,
        max_bytes: int | None,
        *,
        held: HeldLeases | None = None,
        stop: threading.Event | None = None,
    ) -> Any:
        """The response that was served; None when `stop` was set before. `held` has its leases extended by it."""
        attempts = PullAttempts(self._pool, self._options, wait_ms)
        while attempts.wait(stop):
            sent_s = time.monotonic()
            with self._lock:
                acks = list(self._acks)
                extended = held.to_extend(sent_s) if held else []
            given = acks + [_extension(each, held) for each in extended]
            request = PullRequest(
                credential=self._mint.credential(),
                group=self._group,
                topics=self._topics,
                max_messages=max_messages,
                max_bytes=max_bytes,
                wait_ms=min(wait_ms, max(0, int((attempts.deadline_s - sent_s) * 1000))),
                acks=given or None,
                invisible_ms=self._invisible_ms,
            )
            try:
                response, endpoint = self._call(request, attempts.deadline_s, attempts.stay)
            except CallFailed as failure:
                attempts.failed(failure)
                continue
            self._settle(acks, response)
            if held is not None:
                self._extended(held, extended, response, len(acks), sent_s)
            if max_messages:
                self._tell_reports(response)
            if attempts.answered(response, endpoint):
                return response
        return None

    def _call(self, request: PullRequest, deadline_s: float, stay: Endpoint | None) -> tuple[Any, Endpoint]:
        size = len(request.acks or ()) * ACK_BYTES
        timeout_s = request.wait_ms / 1000 + SOCKET_MARGIN_S
        hello = self._hello(request)
        return self._pool.call("pull", request, timeout_s, deadline_s, size=size, hello=hello, stay=stay)

    def _hello(self, request: PullRequest) -> PullRequest:
        return PullRequest(credential=request.credential, group=request.group, topics=request.topics, max_messages=0)

    def _settle(self, acks: list[Ack], response: Any) -> None:
        """Drop settled acknowledgements; the others go with the next pull.

        A refused pull's acknowledgements have codes of their own. Those with the pull's code were not looked at.
        """
        again = acks[len(response.ack_results) :]
        for ack, result in zip(acks, response.ack_results, strict=False):
            action = action_of(result.code)
            if action is Action.REFUSED and result.code != response.code:
                self.acks_refused += 1
            elif action is not Action.DONE:
                again.append(ack)
        with self._lock:
            self._acks = again + self._acks[len(acks) :]
            self._acked_s = time.monotonic()

    def _extended(
        self, held: HeldLeases, extended: list[HeldDelivery], response: Any, first: int, sent_s: float
    ) -> None:
        with self._lock:
            for each, result in zip(extended, response.ack_results[first:], strict=False):
                if action_of(result.code) is Action.DONE:
                    each.until_s = sent_s + held.lease_s
                elif action_of(result.code) is Action.REFUSED and result.code != response.code:
                    each.is_lost = True

    def _tell_reports(self, response: Any) -> None:
        """Tell of the topics that a pull names and that give nothing."""
        if action_of(response.code) is Action.DONE:
            self._tell_topics({each.topic: _reason(each) for each in response.topics or ()})
        elif response.code == Code.UNKNOWN_TOPIC:
            self._tell_topics(dict.fromkeys(self._topics or ["(the group's)"], _reason(response)))

    def _tell_topics(self, unserved: dict[str, str]) -> None:
        """Tell of each topic that gives nothing, and when it is served again; once per change."""
        before, self.unserved_topics = self.unserved_topics, unserved
        for topic, reason in unserved.items():
            if topic not in before:
                self._options.tell(f"topic {topic} gives nothing: {reason}")
        for topic in before.keys() - unserved.keys():
            self._options.tell(f"topic {topic} is served again")


def _extension(each: HeldDelivery, held: HeldLeases | None) -> Ack:
    lease_s = held.lease_s if held else 0.0
    return Ack(receipt=each.delivery.receipt, verdict=Verdict.EXTEND, delay_ms=int(lease_s * 1000))


def _reason(report: Any) -> str:
    return f"{name_of(report.code)}: {report.error or 'no reason given'}"
