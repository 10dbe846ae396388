"""One call's messages and the buffer: which are not tried at the broker, and which go aside after it has failed them."""

import math
from collections.abc import Callable, Sequence

from common.contract import Code, SendResult
from common.ids import parse_id, show_id
from producer_proxy.buffer.entry import Entry
from producer_proxy.buffer.fallback import DIVERTED_CODES, FallbackBuffer, patience_s
from producer_proxy.send.delays import is_delayed


class Aside:
    """
    Args:
        lanes: the Lanes of both classes of durability. With several broker groups the breakers know which of them fails, so that no
            timeout makes all of them suspect. next_id: a new 16-byte id. refusal: (code, sentence, shown id) to a result.
    """

    def __init__(
        self, buffer: FallbackBuffer, lanes, next_id: Callable[[], bytes], now_ms: Callable[[], int],
        refusal: Callable[[int, str | None, str | None], SendResult],
    ) -> None:  # fmt: skip
        self._buffer, self._lanes, self._next_id, self._now_ms = buffer, lanes, next_id, now_ms
        self._refusal = refusal
        self._is_one_broker = any(lanes.only is not None for lanes in lanes)

    def tried(self, messages: Sequence, wanted: Sequence[int]) -> list[int]:
        """Those of `wanted` that the broker shall get; the others are for `save()`, which finds them without a result."""
        if not self._buffer.stores:
            return list(wanted)
        return [index for index in wanted if not self._goes_aside(messages[index])]

    def patience_s(self, messages: Sequence, wanted: Sequence[int], timeout_s: float) -> float:
        """How long to wait for the broker."""
        return (
            patience_s(timeout_s) if any(self._buffer.takes(messages[index].topic) for index in wanted) else timeout_s
        )

    def save(self, messages: Sequence, results: list[SendResult | None], waited_s: float) -> None:
        """Store what has no result, and what the broker failed of buffered topics; each gets its result. Blocks."""
        if not self._buffer.stores:
            return
        at = [index for index, result in enumerate(results) if self._is_for_buffer(messages[index], result)]
        if not at:
            return
        if not all(lanes.up for lanes in self._lanes):
            self._buffer.engine_failed(math.inf)
        elif self._is_one_broker and any(result is not None and result.code == Code.TIMEOUT for result in results):
            self._buffer.engine_failed(waited_s)
        entries = [self._entry(messages[index], results[index]) for index in at]
        for index, entry, code in zip(at, entries, self._buffer.put(entries), strict=True):
            shown = messages[index].id if entry.assigned_id is None else show_id(entry.assigned_id)
            if code == Code.BUFFERED:
                results[index] = SendResult(code=code, id=shown)
            elif getattr(results[index], "code", None) != Code.TIMEOUT:  # unknown stays unknown
                results[index] = self._refusal(code, None, shown)

    def rescued(self, messages: Sequence, outcomes: Sequence, waited_s: float) -> list[SendResult]:
        """Results of a call of the hot path: (code, queue, offset, id) for each message."""
        results: list = []
        for code, queue, offset, shown in outcomes:
            stored = code in (Code.OK, Code.DUPLICATE)
            results.append(
                SendResult(code=code, id=shown.decode(), queue=queue, offset=offset)
                if stored
                else self._refusal(code, None, shown.decode())
            )
        self.save(messages, results, waited_s)
        return results

    def _goes_aside(self, message) -> bool:
        if self._buffer.diverts(message.topic, _key(message)):
            return True
        return not all(lanes.up for lanes in self._lanes) and self._buffer.takes(message.topic)

    def _is_for_buffer(self, message, result: SendResult | None) -> bool:
        if result is None:
            return True
        return result.code in DIVERTED_CODES and self._buffer.takes(message.topic) and not is_delayed(message)

    def _entry(self, message, result: SendResult | None) -> Entry:
        """Under the id that the caller may have been told, or that the broker may have seen."""
        assigned = None
        if message.id is None:
            assigned = (parse_id(result.id) if result is not None and result.id else None) or self._next_id()
        return Entry(message.topic, _key(message), assigned, bytes(message.encoded), self._now_ms())


def _key(message) -> bytes | None:
    return None if message.key is None else message.key.encode()
