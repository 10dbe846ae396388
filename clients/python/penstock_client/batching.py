"""Collects single messages into calls."""

import atexit
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from penstock_client.contract import Message
from penstock_client.errors import ClosedError, FullError, SendError
from penstock_client.producer import CALL_BYTES_MAX, CALL_MESSAGES_MAX, Producer, size_of
from penstock_client.results import Result


@dataclass(frozen=True)
class Batching:
    linger_ms: int = 5  # a message waits for others at most this long
    bytes: int = 256 << 10  # a call is made at once when so many bytes wait
    messages: int = CALL_MESSAGES_MAX  # or so many messages
    bytes_max: int = 32 << 20  # that wait or are on their way; beyond it `send` waits
    full_wait_ms: int = 10_000  # then `send` raises FullError


@dataclass
class _Waiting:
    message: Message
    size: int
    since_s: float
    outcome: Future[Result]


class BatchingProducer:
    """Collects single messages into calls, made one after another by a thread of its own. Thread-safe.

    A call takes all that waits, as far as it fits. Messages of one key keep their order, over retries too. A message
    must not be changed before its outcome is known. Close it or use it as a context manager; it does not close the
    producer.
    """

    def __init__(self, producer: Producer, how: Batching | None = None) -> None:
        self._producer, self._how = producer, how or Batching()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0  # of what waits or is on its way
        self._waiting_bytes = 0
        self._taken = self._answered = self._flush_to = 0  # numbers of messages
        self._is_closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._send_all, name="penstock-batching", daemon=True).start()
        atexit.register(self.close)

    def __enter__(self) -> "BatchingProducer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: Message) -> Future[Result]:
        """Take a message. The future gives its `Result`, or raises as `Producer.send` does; it cannot be cancelled.

        Raises:
            FullError: as much as `bytes_max` waits, for `full_wait_ms` already. The message was not taken.
            ClosedError: after `close`.
            ValueError: the message has no topic, or fields of other types.
        """
        _check(message)
        message.id = message.id or uuid.uuid4().hex
        taken = _Waiting(message, size_of(message), time.monotonic(), Future())
        taken.outcome.set_running_or_notify_cancel()
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._is_closed or self._bytes < self._how.bytes_max, self._how.full_wait_ms / 1000
            )
            if self._is_closed:
                raise ClosedError("the producer is closed")
            if not has_room:
                raise FullError(f"{self._bytes} bytes wait: no room for {self._how.full_wait_ms} ms")
            taken.since_s = time.monotonic()
            self._waiting.append(taken)
            self._taken += 1
            self._bytes += taken.size
            self._waiting_bytes += taken.size
            if len(self._waiting) == 1 or self._is_enough():
                self._changed.notify_all()
        return taken.outcome

    def flush(self) -> None:
        """Send what waits now, and block until all that was taken before is answered."""
        with self._changed:
            last = self._flush_to = self._taken
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= last)

    def close(self, deadline_ms: int = 10_000) -> None:
        """Send what waits, until the deadline at most. What is in no call by then ends with ClosedError; a call in
        progress goes on by its own deadline. Later messages are refused.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered == self._taken, deadline_ms / 1000)
            left = list(self._waiting)
            self._waiting.clear()
            self._answered += len(left)
            self._changed.notify_all()
        for each in left:
            each.outcome.set_exception(ClosedError("the producer was closed before it sent the message"))

    def _is_enough(self) -> bool:
        return self._waiting_bytes >= self._how.bytes or len(self._waiting) >= self._how.messages

    def _send_all(self) -> None:
        while batch := self._next_batch():
            try:
                results = self._producer.send_all([each.message for each in batch])
                for each, result in zip(batch, results, strict=True):
                    if result.ok:
                        each.outcome.set_result(result)
                    else:
                        each.outcome.set_exception(SendError(result))
            except Exception as error:
                for each in batch:
                    each.outcome.set_exception(error)
            with self._changed:
                self._answered += len(batch)
                self._bytes -= sum(each.size for each in batch)
                self._changed.notify_all()

    def _next_batch(self) -> list[_Waiting]:
        """Blocks until a call is to be made; empty when none will be."""
        with self._changed:
            while not (self._waiting and self._is_due()):
                if self._is_closed and not self._waiting:
                    return []
                left_s = (
                    self._waiting[0].since_s + self._how.linger_ms / 1000 - time.monotonic() if self._waiting else None
                )
                self._changed.wait(left_s)
            batch: list[_Waiting] = []
            size = 0
            while self._waiting and len(batch) < CALL_MESSAGES_MAX:
                size += self._waiting[0].size
                if batch and size > CALL_BYTES_MAX:
                    break
                batch.append(self._waiting.popleft())
            self._waiting_bytes -= sum(each.size for each in batch)
            return batch

    def _is_due(self) -> bool:
        is_hurried = self._is_closed or self._flush_to > self._answered or self._is_enough()
        return is_hurried or time.monotonic() >= self._waiting[0].since_s + self._how.linger_ms / 1000


def _check(message: Message) -> None:
    """One message that cannot be encoded must not fail the others of its call."""
    texts = {"topic": message.topic, "key": message.key, "tag": message.tag, "id": message.id}
    for name, text in {**texts, **(message.properties or {})}.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"message {name}: use a string")
    if not message.topic:
        raise ValueError("message topic: missing")
    if message.body is not None and not isinstance(message.body, bytes):
        raise ValueError("message body: use bytes")
