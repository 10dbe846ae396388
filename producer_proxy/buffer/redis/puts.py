"""Puts that wait for a pipeline to Redis: one at a time; those that come during a round trip join the next one."""

from collections.abc import Callable, Iterator, Sequence

import gevent
from gevent.event import AsyncResult
from gevent.lock import RLock

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_, BufferUncertain

FLUSH_VALUES_MAX, FLUSH_BYTES_MAX = 1000, 8 << 20


class PutQueue:
    """
    Args:
        mutex: held during a round trip.
        push: appends entries; returns errors by topic.
        leave: called with the entries of a put that has failed, and with whether a part of them is stored.
    """

    def __init__(
        self, mutex: RLock, push: Callable[[list[BufferEntry]], dict[str, BufferError_]],
        leave: Callable[[Sequence[BufferEntry], bool], None],
    ) -> None:  # fmt: skip
        self._mutex, self._push, self._leave = mutex, push, leave
        self._queue: list[tuple[Sequence[BufferEntry], AsyncResult]] = []
        self._flushing = False

    def put(self, entries: Sequence[BufferEntry]) -> None:
        """Append them with the next pipeline. Blocks. Raises BufferError_."""
        result: AsyncResult = AsyncResult()
        self._queue.append((entries, result))
        if not self._flushing:
            self._flushing = True
            gevent.spawn(self._flush)
        result.get()

    def waiting(self) -> Iterator[Sequence[BufferEntry]]:
        """The entries of puts that are in no pipeline yet."""
        return (entries for entries, _ in self._queue)

    def _flush(self) -> None:
        try:
            while self._queue:
                with self._mutex:
                    puts = self._next_puts()
                    errors = self._push([entry for entries, _ in puts for entry in entries])
                    for entries, result in puts:
                        self._answer(entries, result, errors)
        finally:
            self._flushing = False

    def _next_puts(self) -> list[tuple[Sequence[BufferEntry], AsyncResult]]:
        count = size = 0
        for entries, _ in self._queue:
            size += sum(entry.size_bytes for entry in entries)
            if count and (count >= FLUSH_VALUES_MAX or size > FLUSH_BYTES_MAX):
                break
            count += 1
        puts, self._queue = self._queue[:count], self._queue[count:]
        return puts

    def _answer(self, entries: Sequence[BufferEntry], result: AsyncResult, errors: dict[str, BufferError_]) -> None:
        topics = {entry.topic for entry in entries}
        failed = [errors[topic] for topic in topics if topic in errors]
        if not failed:
            result.set()
            return
        is_partly_stored = len(failed) < len(topics)
        self._leave(entries, is_partly_stored)
        if is_partly_stored:
            result.set_exception(BufferUncertain(f"{failed[0]}; a part may be stored"))
        else:
            result.set_exception(next((each for each in failed if isinstance(each, BufferUncertain)), failed[0]))
