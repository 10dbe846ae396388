"""Sends messages and retries those that need it, each by its own result code."""

import random
import time
import uuid
from collections.abc import Callable, Iterable

from penstock_client.backoff import backoff_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code, Delivery, Message, SendRequest, producer_thrift
from penstock_client.credential import CredentialMint
from penstock_client.errors import CallFailed, ContractError, SendError
from penstock_client.options import Endpoints, Options, parse_endpoints
from penstock_client.plan import SendPlan
from penstock_client.pool import ANSWER_MARGIN_S, Endpoint, Pool
from penstock_client.results import Result

CALL_MESSAGES_MAX = 1_000
CALL_BYTES_MAX = 8_000_000  # well under Thrift's frame limit of 16,384,000


class Producer:
    """Sends to Penstock through any of several producer proxies. Thread-safe; close it or use it as a context manager.

    A message without an id gets one: a UUID in hex, set in the caller's object. Only with the same id is a retry after
    a broken connection free of duplicates.

    Attributes:
        retried: resent messages, over all calls.
    """

    def __init__(
        self, endpoints: Endpoints, app: str, key_id: str, secret: str | bytes, options: Options | None = None
    ) -> None:
        self._options = options or Options()
        self._pool = Pool(parse_endpoints(endpoints), producer_thrift.Producer, self._options)
        self._mint = CredentialMint(app, key_id, secret, self._options.credential_ms)
        self.retried = 0

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: Message, **how) -> Result:
        """Send one message and return once it is stored.

        Args:
            how: as for `send_all`.
        Raises:
            SendError: it was refused, or the deadline passed. `maybe_stored` tells whether it may be stored all the
                same.
            ContractError: no endpoint is a producer proxy, and nothing is stored.
        """
        result = self.send_all([message], **how)[0]
        if not result.ok:
            raise SendError(result)
        return result

    def request(self, message: Message, wait_ms: int, **how) -> Message:
        """Send one message and return what a consumer replies.

        Args:
            wait_ms: maximum time to wait, added to the deadline; the message is not dispatched afterwards.
            how: as for `send_all`.
        Raises:
            SendError: as for `send`; or there is no reply, with NO_CONSUMER, NO_REPLY or CONSUMER_FAILED as the reason;
                or TIMEOUT, as an earlier attempt was stored, whose reply cannot be had.
        """
        result = self.send(message, reply_wait_ms=wait_ms, **how)
        if result.reply is None:
            raise SendError(result)
        return result.reply

    def reply(self, delivery: Delivery, body: bytes, properties: dict[str, str] | None = None) -> Result:
        """Answer a delivery that has a `reply_token`; returns once the waiting caller has the reply.

        Raises:
            SendError: STALE_RECEIPT when the caller no longer waits, or as for `send`.
        """
        return self.send(
            Message(
                topic=delivery.message.topic, body=body, properties=properties, reply_to=delivery.reply_token or b""
            )
        )

    def send_all(
        self,
        messages: Iterable[Message],
        *,
        durability: int | None = None,
        reply_wait_ms: int | None = None,
        deadline_ms: int | None = None,
    ) -> list[Result]:
        """Send many messages, of any topics, and return one result each, in order. Does not raise for a message's
        failure.

        Messages of one key keep their order, over retries too: a message waits while an earlier one of its key does.

        Args:
            durability: a `Durability`; None: the topic's setting.
            reply_wait_ms: wait for a consumer's reply; one message only.
            deadline_ms: for everything, retries included, with 500 ms more for an answer; None: the option.
                `reply_wait_ms` is added to it.
        """
        messages = list(messages)
        for message in messages:
            if not message.id:
                message.id = uuid.uuid4().hex
        now_s = time.monotonic()
        deadline_s = now_s + (deadline_ms or self._options.deadline_ms) / 1000 + (reply_wait_ms or 0) / 1000
        plan = SendPlan([_key(each) for each in messages], now_s, self._pauses(), is_request=bool(reply_wait_ms))
        stay = None
        while not plan.finished:
            now_s = time.monotonic()
            start_s = max(plan.next_due_s(), self._pool.usable_at_s())
            if max(start_s, now_s) >= deadline_s:
                break
            if start_s > now_s:
                time.sleep(start_s - now_s)
                continue
            indexes, size = _one_call(messages, plan.due(now_s))
            left_ms = max(1, int((deadline_s - now_s) * 1000))
            request = SendRequest(
                credential=self._mint.credential(),
                messages=[messages[index] for index in indexes],
                durability=durability,
                reply_wait_ms=min(reply_wait_ms, left_ms) if reply_wait_ms else None,
                timeout_ms=min(self._options.call_timeout_ms, left_ms),
            )
            self.retried += sum(1 for index in indexes if plan.entries[index].attempts)
            stay = self._attempt(plan, indexes, request, deadline_s, size, stay)
        results = [_result(message, entry) for message, entry in zip(messages, plan.entries, strict=True)]
        for result in results:
            self._options.metrics.sent(result)
        return results

    def close(self) -> None:
        self._pool.close()

    def _attempt(
        self,
        plan: SendPlan,
        indexes: list[int],
        request: SendRequest,
        deadline_s: float,
        size: int,
        stay: Endpoint | None,
    ) -> Endpoint | None:
        """One call. Returns the proxy that has promised a slot at its rate limit: the retry has to go there."""
        timeout_s = max(request.timeout_ms, request.reply_wait_ms or 0) / 1000 + ANSWER_MARGIN_S
        hello = SendRequest(credential=request.credential, messages=[])
        try:
            response, endpoint = self._pool.call(
                "send", request, timeout_s, deadline_s, size=size, hello=hello, stay=stay
            )
            if len(response.results or ()) != len(indexes):
                raise CallFailed("the answer has another number of results", sent=True)
        except (CallFailed, ContractError) as failure:
            for index in indexes:
                plan.failed(index, str(failure), sent=failure.sent, now_s=time.monotonic())
            if isinstance(failure, ContractError):
                if not plan.has_outcomes:
                    raise
                plan.end()
            return None
        now_s = time.monotonic()
        for index, answer in zip(indexes, response.results, strict=True):
            plan.answered(index, answer, now_s)
        if any(action_of(answer.code) is Action.ELSEWHERE for answer in response.results):
            self._pool.set_aside(endpoint)
        else:
            self._pool.praise(endpoint)
        return endpoint if any(answer.code == Code.RATE_LIMITED for answer in response.results) else None

    def _pauses(self) -> Callable[[int], float]:
        """The back-off of one send. Its jitter is drawn once: messages refused together are sent again together."""
        chance = random.random()
        return lambda failures: backoff_s(
            failures, self._options.backoff_first_ms, self._options.backoff_max_ms, chance
        )


def _key(message: Message) -> tuple[str, str] | None:
    return None if message.key is None else (message.topic, message.key)


def _one_call(messages: list[Message], due: list[int]) -> tuple[list[int], int]:
    """The due messages that fit into one call, at least one, and their approximate size in bytes."""
    size = 0
    for count, index in enumerate(due):
        more = size_of(messages[index])
        if count and (count >= CALL_MESSAGES_MAX or size + more > CALL_BYTES_MAX):
            return due[:count], size
        size += more
    return due, size


def size_of(message: Message) -> int:
    properties = sum(len(name) + len(value) for name, value in (message.properties or {}).items())
    return 200 + len(message.topic) + len(message.body or b"") + 4 * len(message.key or "") + 4 * properties


def _result(message: Message, entry) -> Result:
    answer = entry.answer
    if not entry.settled:
        return Result(entry.final_code, message.id, error=entry.error, attempts=entry.attempts)
    return Result(
        entry.final_code,
        answer.id or message.id,
        answer.queue,
        answer.offset,
        entry.error,
        answer.reply,
        entry.attempts,
    )
