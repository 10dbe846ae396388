"""Diversion into the fallback buffer: messages that are not sent to their target, and messages that it failed."""

import math
from collections.abc import Callable, Sequence

from common.contract import Code, SendResult
from common.ids import parse_id
from common.wire.calls import Message
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferFull
from producer_proxy.buffer.fallback import DIVERTED_CODES, FallbackBuffer, patience_s
from producer_proxy.send.delays import is_delayed
from producer_proxy.send.pending import PendingMessage
from producer_proxy.send.results import BUFFER_FULL
from producer_proxy.targets.topics import Targets

HotOutcome = tuple[int, int | None, int | None, bytes]
"""(code, queue, offset, id as shown) of one message of the hot path."""


class Diversion:
    """The diversion of one proxy.

    Args:
        next_id: a new 16-byte id.
    """

    def __init__(
        self, buffer: FallbackBuffer, targets: Targets, next_id: Callable[[], bytes], now_ms: Callable[[], int]
    ) -> None:
        self._buffer, self._targets, self._next_id, self._now_ms = buffer, targets, next_id, now_ms

    def tried(self, pending: Sequence[PendingMessage]) -> list[PendingMessage]:
        """The messages to send to their targets. The others stay open, for `save()`."""
        if not self._buffer.stores:
            return list(pending)
        return [each for each in pending if not self._is_untried(each)]

    def patience_s(self, pending: PendingMessage, timeout_s: float) -> float:
        """Seconds to wait for its target."""
        if pending.target is None or not self._buffer.takes(pending.message.topic):
            return timeout_s
        return patience_s(timeout_s, pending.target.switch_s)

    def save(self, pending: Sequence[PendingMessage], waited_s: float) -> None:
        """Store the open messages, and failed messages of buffered topics; each gets its result. Blocks."""
        if not self._buffer.stores:
            return
        diverted = [each for each in pending if self._is_for_buffer(each)]
        if not diverted:
            return
        if any(each.target is not None and each.target.primary is self._targets.default for each in diverted):
            self._suspect(pending, waited_s)
        entries = [self._entry(each) for each in diverted]
        for each, error in zip(diverted, self._buffer.put(entries), strict=True):
            if error is None:
                each.result = SendResult(code=int(Code.BUFFERED), id=each.shown_id)
            elif each.result is None or each.result.code != Code.TIMEOUT:  # an unknown outcome stays unknown
                each.refuse(int(error.code), BUFFER_FULL if isinstance(error, BufferFull) else None)

    def rescued(self, messages: Sequence[Message], outcomes: Sequence[HotOutcome], waited_s: float) -> list[SendResult]:
        """Results of a hot-path call in which the engine failed a message."""
        pending = [self._rescued(*each) for each in zip(messages, outcomes, strict=True)]
        self.save(pending, waited_s)
        return [each.answer() for each in pending]

    def _rescued(self, message: Message, outcome: HotOutcome) -> PendingMessage:
        code, queue, offset, shown = outcome
        pending = PendingMessage(message)
        pending.target = self._targets.default  # the hot path knows no other one
        if message.id is None:
            pending.assigned_id = parse_id(shown.decode())
        pending.settle(code, queue, offset)
        return pending

    def _suspect(self, pending: Sequence[PendingMessage], waited_s: float) -> None:
        """Tell the buffer that the engine has failed, if the links or the answers show it."""
        engine = self._targets.default
        own = [each for each in pending if each.target is not None and each.target.primary is engine]
        results = [each.result for each in own if each.result is not None]
        if not engine.up:
            self._buffer.engine_failed(math.inf)
        elif not engine.isolates_failures and any(result.code == Code.TIMEOUT for result in results):
            self._buffer.engine_failed(waited_s)

    def _is_untried(self, pending: PendingMessage) -> bool:
        topic, target = pending.message.topic, pending.target
        if self._buffer.holds(topic, pending.key):
            return True
        if target is None:
            return False
        is_suspected = target.primary is self._targets.default and self._buffer.suspects_engine
        return (is_suspected or not target.up) and self._buffer.takes(topic)

    def _is_for_buffer(self, pending: PendingMessage) -> bool:
        if pending.result is None:
            return pending.is_open
        is_failed = pending.result.code in DIVERTED_CODES
        return is_failed and self._buffer.takes(pending.message.topic) and not is_delayed(pending.message)

    def _entry(self, pending: PendingMessage) -> BufferEntry:
        """The entry, under the id that the caller or the broker may know already."""
        message = pending.message
        if message.id is None and pending.assigned_id is None:
            pending.assigned_id = self._next_id()
        return BufferEntry(message.topic, pending.key, pending.assigned_id, message.encoded, self._now_ms())
