"""A source in this process: leases, acknowledgements, retries and waiting pulls over a MemoryBroker.

A substitute for the engine source, for tests and for consumers inside the process. It lacks filters, order by key,
durable progress, and properties on dead letters, which are kept as they were stored. A group whose definition names a
time begins at the earliest record.
"""

from collections.abc import Callable
from itertools import count
from random import random
from typing import Any

import gevent

from common.clock import Clock
from common.dead_letters import dead_letter_topic, is_dead_letter_topic
from common.memory_broker import MemoryBroker
from common.placement import topic_hash
from common.retry import DEFAULT_RETRY, Retry
from consumer_proxy.sources.base import Failure, OnLent, OnPulled, OnRead, Source, SourceDown
from consumer_proxy.sources.memory_cursor import MemoryCursor
from consumer_proxy.sources.memory_read import WaitingRead
from engine.link.acknowledgement import DONE, EXTEND, REJECT, RELEASE, AckRange, AckRanges
from engine.link.codes import INVALID, OK, SHUTTING_DOWN, STALE_RECEIPT, UNAVAILABLE
from engine.link.pieces import AnswerPiece
from engine.link.pull import LATEST, PullAnswer, PullQuestion, PullScope, acknowledging
from engine.link.read import ReadQuestion
from engine.link.receipt import MAC_SIZE, TOKEN, TOKEN_SIZE, TOKEN_VERSION

TICK_S = 0.01
ATTEMPTS_MAX = 16
_INVISIBLE_MS = 30_000
_BYTES_MAX = 1 << 20
_CLOSED = "the source was closed"


class _WaitingPull:
    """A pull that waits for messages."""

    def __init__(self, question: PullQuestion, codes: list[int], until_ms: int, on_pulled: OnPulled) -> None:
        self.question, self.codes, self.until_ms, self.on_pulled = question, codes, until_ms, on_pulled


class MemorySource(Source):
    """Groups over the queues of a broker in memory.

    Args:
        clock: its monotonic time is that of the leases.
        soon: calls a function later, in the loop; the default is the loop of this thread.
        retry: back-off of failed messages.
        attempts_max: deliveries after which a message becomes a dead letter.
    """

    def __init__(
        self, broker: MemoryBroker, clock: Clock, soon: Callable[..., Any] | None = None, retry: Retry = DEFAULT_RETRY,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:  # fmt: skip
        self._broker, self._clock, self._retry, self._attempts_max = broker, clock, retry, attempts_max
        loop = gevent.get_hub().loop
        self._soon = soon or loop.run_callback
        self._cursors: dict[tuple[bytes, int, int], MemoryCursor] = {}  # by group, topic hash, queue
        self._leases = count(1)
        self._turn = 0  # the queue that a pull begins with
        self._waiting: dict[_WaitingPull | WaitingRead, None] = {}
        self._closed = False
        broker.on_append(self._on_append)
        self._ticking = loop.timer(TICK_S, TICK_S)
        self._ticking.start(self.tick)

    @property
    def up(self) -> bool:
        return not self._closed

    def pull(self, question: PullQuestion, on_pulled: OnPulled) -> Any:
        self._check_open()
        self._begin(question)
        waiting = _WaitingPull(question, self._acknowledge(question), self._until_ms(question.wait_ms), on_pulled)
        if question.max_messages <= 0 or question.wait_ms <= 0:
            self._answer(waiting, self._lease(question))
        else:
            self._waiting[waiting] = None
        self._soon(self._serve)  # waiting pulls may get messages that were just given back
        return waiting

    def read(self, question: ReadQuestion, on_read: OnRead) -> Any:
        self._check_open()
        waiting = WaitingRead(self._broker, question, self._until_ms(question.wait_ms), on_read)
        self._waiting[waiting] = None
        self._soon(self._serve)
        return waiting

    def cancel(self, handle: Any) -> None:
        if handle in self._waiting:
            handle.until_ms = 0
            self._soon(self._serve)

    def acknowledge(self, scope: PullScope, acks: AckRanges) -> None:
        self._acknowledge(acknowledging(scope, acks))
        self._soon(self._serve)

    def lend(self, request: bytes, on_lent: OnLent) -> None:
        """Lends nothing: this process keeps its static share of each limit."""
        on_lent(UNAVAILABLE, b"")

    def close(self) -> None:
        self._closed = True
        self._ticking.stop()
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            on_answer = each.on_pulled if isinstance(each, _WaitingPull) else each.on_read
            self._soon(on_answer, Failure(SHUTTING_DOWN, _CLOSED))

    def tick(self) -> None:
        """Expire leases and end waiting; called every TICK_S."""
        now_ms = self._now_ms()
        # A copy: answers may add cursors during the iteration.
        is_ready = [cursor.expire(now_ms) for cursor in list(self._cursors.values())]
        if any(is_ready) or any(each.until_ms <= now_ms for each in self._waiting):
            self._serve()

    # -- acknowledgements

    def _acknowledge(self, question: PullQuestion) -> list[int]:
        return [self._acknowledge_one(question.scope.group, ack) for ack in question.acks]

    def _acknowledge_one(self, group: bytes, ack: AckRange) -> int:
        version, queue, messages, hashed, base, lease = TOKEN.unpack(ack.token[: TOKEN_SIZE - MAC_SIZE])
        cursor = self._cursors.get((group, hashed, queue))
        first, end = base + ack.first, base + ack.first + ack.count
        if version != TOKEN_VERSION or cursor is None or ack.count < 1 or ack.first + ack.count > messages:
            return STALE_RECEIPT
        if not DONE <= ack.verdict <= RELEASE or ack.delay_ms < -1:
            return INVALID
        if ack.verdict == REJECT and is_dead_letter_topic(cursor.topic):
            return INVALID
        if not cursor.holds(first, end, lease):
            return STALE_RECEIPT
        if ack.verdict == REJECT:
            self._bury(group, [cursor.record(offset) for offset in range(first, end)])
        if ack.verdict in (DONE, REJECT):
            cursor.settle(first, end)
        elif ack.verdict == RELEASE:
            cursor.release(first, end)
        else:
            cursor.hold(first, end, self._now_ms() + self._delay_ms(cursor, first, ack))
            cursor.expire(self._now_ms())
        return OK

    def _delay_ms(self, cursor: MemoryCursor, first: int, ack: AckRange) -> int:
        if ack.delay_ms >= 0:
            return ack.delay_ms
        return _INVISIBLE_MS if ack.verdict == EXTEND else self._retry.delay_ms(cursor.attempt(first), random)

    def _bury(self, group: bytes, records: list[bytes]) -> None:
        topic = dead_letter_topic(group.decode())
        if self._broker.queues(topic) is None:
            self._broker.create_topic(topic, 1)
        self._broker.append(topic, 0, records, self._clock.now_ms())

    # -- deliveries

    def _begin(self, question: PullQuestion) -> None:
        """Give the group a cursor in each queue of the topics that exist by now."""
        scope = question.scope
        for name, _ in scope.queues() if question.max_messages > 0 else ():
            name = name.partition(b"@")[0]  # this broker's topics are never deleted
            topic, hashed = name.decode(), topic_hash(name)
            for queue in range(self._broker.queues(topic) or 0):
                if (scope.group, hashed, queue) not in self._cursors:
                    offset = self._broker.end_offset(topic, queue) if question.start == LATEST else 0
                    self._cursors[scope.group, hashed, queue] = MemoryCursor(self._broker, topic, queue, offset)

    def _lease(self, question: PullQuestion) -> list[AnswerPiece]:
        """Pieces for one pull. Each pull begins with the next queue."""
        scope = question.scope
        hashes = (
            {topic_hash(name.partition(b"@")[0]): None for name, _ in scope.queues()}
            if question.max_messages > 0
            else {}
        )
        cursors = [
            cursor for (group, hashed, _), cursor in self._cursors.items() if group == scope.group and hashed in hashes
        ]
        pieces: list[AnswerPiece] = []
        left, left_bytes = question.max_messages, question.max_bytes if question.max_bytes > 0 else _BYTES_MAX
        self._turn += 1
        for at in range(len(cursors)):
            cursor = cursors[(self._turn + at) % len(cursors)]
            if not is_dead_letter_topic(cursor.topic):
                self._bury_spent(scope.group, cursor)
            while left > 0 and left_bytes > 0 and (piece := self._lease_run(question, cursor, left, left_bytes)):
                pieces.append(piece)
                left -= piece.count
                left_bytes -= len(piece.records)
        return pieces

    def _lease_run(
        self, question: PullQuestion, cursor: MemoryCursor, max_messages: int, max_bytes: int
    ) -> AnswerPiece | None:
        lease, invisible_ms = next(self._leases), question.invisible_ms or _INVISIBLE_MS
        run = cursor.lease(max_messages, max_bytes, lease, self._now_ms() + invisible_ms)
        if run is None:
            return None
        hashed, messages = topic_hash(cursor.topic.encode()), len(run.records)
        token = TOKEN.pack(TOKEN_VERSION, cursor.queue, messages, hashed, run.first_offset, lease) + bytes(MAC_SIZE)
        records = b"".join(run.records)
        return AnswerPiece(token, run.first_offset, 0, cursor.queue, messages, run.attempt, run.stored_at_ms, records)

    def _bury_spent(self, group: bytes, cursor: MemoryCursor) -> None:
        records = [record for _, record in cursor.take_spent(self._attempts_max)]
        if records:
            self._bury(group, records)

    def _answer(self, waiting: _WaitingPull, pieces: list[AnswerPiece]) -> None:
        self._soon(waiting.on_pulled, PullAnswer.of(waiting.codes, pieces))

    # -- waiting

    def _on_append(self, topic: str, queue: int) -> None:
        if self._waiting:
            self._soon(self._serve)

    def _serve(self) -> None:
        """Answer questions that have messages, or whose waiting time is over."""
        now_ms = self._now_ms()
        for waiting in list(self._waiting):
            if waiting not in self._waiting:
                continue
            if isinstance(waiting, WaitingRead):
                answer = waiting.try_answer(now_ms)
                if answer is not None:
                    del self._waiting[waiting]
                    self._soon(waiting.on_read, answer)
                continue
            self._begin(waiting.question)
            # A cancelled pull leases nothing: its client may have left.
            pieces = self._lease(waiting.question) if waiting.until_ms else []
            if pieces or waiting.until_ms <= now_ms:
                del self._waiting[waiting]
                self._answer(waiting, pieces)

    def _until_ms(self, wait_ms: int) -> int:
        return self._now_ms() + max(0, wait_ms)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000) + 1  # never 0, which marks a cancelled pull

    def _check_open(self) -> None:
        if self._closed:
            raise SourceDown(_CLOSED)
