"""A consumer inside the process: pulls from a source without a connection or a frame. Push and sinks build on it."""

from collections.abc import Callable, Iterable
from typing import Any

from consumer_proxy.sources.base import Failure, Source
from engine.link.acknowledgement import DONE, NO_ACKS, AckRange, AckRanges
from engine.link.pull import EARLIEST, PullAnswer, PullQuestion, PullScope, acknowledging

OnCodes = Callable[[list[int] | Failure], None]


class InProcessConsumer:
    """One consumer of a group.

    Args:
        scope: the group and the topics that it consumes.
        invisible_ms: length of a lease.
        start: first position of the group in queues that it has not pulled from yet.
    """

    def __init__(self, source: Source, scope: PullScope, *, invisible_ms: int, start: int = EARLIEST) -> None:
        self._source, self._scope, self._invisible_ms, self._start = source, scope, invisible_ms, start

    def question(
        self, *, max_messages: int = 32, max_bytes: int = 1 << 20, wait_ms: int = 0, acks: AckRanges = NO_ACKS
    ) -> PullQuestion:
        """Make a question with this consumer's group and topics."""
        return PullQuestion(self._scope, max_messages, max_bytes, wait_ms, self._invisible_ms, self._start, acks)

    def pull(self, question: PullQuestion, on_answer: Callable[[PullAnswer | Failure], None]) -> Any:
        """Lease messages or wait for some. `on_answer` is called once, in the loop. Returns a handle.

        Raises SourceDown.
        """
        return self._source.pull(question, on_answer)

    def cancel(self, handle: Any) -> None:
        """End the waiting of a pull: it is answered with the messages it has."""
        self._source.cancel(handle)

    def acknowledge(self, ranges: Iterable[AckRange], on_codes: OnCodes | None = None) -> None:
        """Acknowledge; `on_codes` gets one code per range. Without it, a lost acknowledgement expires with its lease.

        Raises SourceDown when `on_codes` is given and the source cannot be reached.
        """
        acks = AckRanges.of(ranges)
        if on_codes is None:
            self._source.acknowledge(self._scope, acks)
            return

        def answered(answer: PullAnswer | Failure) -> None:
            on_codes(answer if isinstance(answer, Failure) else answer.codes())

        self._source.pull(acknowledging(self._scope, acks), answered)


def whole_pieces(answer: PullAnswer, verdict: int = DONE, delay_ms: int = -1) -> list[AckRange]:
    """Ranges that acknowledge all messages of an answer with one verdict."""
    return [AckRange(piece.token, piece.first_delta, piece.count, verdict, delay_ms) for piece in answer.pieces()]
