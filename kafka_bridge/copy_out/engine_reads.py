"""Reads a topic of the engine by position, over links to the brokers that have its queues."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from common.config.definitions import CutRecord
from engine.client.admin import AdminError
from engine.client.copied import CopyLink, states
from engine.client.single_reads import MessageAt, messages_at
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK
from engine.link.copy import SourceState
from engine.link.operations import READ
from engine.link.pieces import AnswerPiece
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from kafka_bridge.copy_in.last_copied import LastCopied, last_copied
from kafka_bridge.copy_out.page import EngineTopic

PAGE_RECORDS = 2_000
QUEUES_MAX = 1 << 31


class MessagesDeleted(Exception):
    """Retention has deleted messages that were not copied. The text says which."""


class ReadLink(CopyLink, Protocol):
    """A link that can be closed."""

    def close(self) -> None: ...


class QueueLink(NamedTuple):
    """A broker that has queues of the topic.

    Attributes:
        log_id, start: as its HELLO tells them.
    """

    link: ReadLink
    log_id: str
    queues: Sequence[int]
    start: str = ""


class EngineReads:
    """For one thread. All calls block and raise AdminError, OSError or LinkError.

    Args:
        topic: its stored name.
        links: brokers that together have all queues of the topic; owned from now on.
        is_current: whether these are still all queues, at these brokers.
        cut: of the plan whose copy this is: what lies before it is in Kafka. None: a copy without a plan.
    """

    def __init__(
        self, topic: str, links: Sequence[QueueLink], is_current: Callable[[], bool] = lambda: True,
        cut: CutRecord | None = None,
    ) -> None:  # fmt: skip
        self._topic, self._links, self.is_current, self.cut = topic, links, is_current, cut

    def close(self) -> None:
        for each in self._links:
            each.link.close()

    def places(self) -> dict[int, EngineTopic]:
        """The topic per queue: brokers have logs and numbers of their own."""
        return {
            queue: EngineTopic(each.log_id, state.topic_id)
            for each in self._links
            for queue, state in self._states(each, each.queues)
        }

    def message_at(self, queue: int, offset: int) -> MessageAt:
        """What the queue has at an offset."""
        broker = next(each for each in self._links if queue in each.queues)
        return messages_at(broker.link, self._topic, {queue: offset})[queue]

    @property
    def starts(self) -> tuple[str, ...]:
        """The starts of the brokers' engines: another log has others. Empty: not known."""
        return tuple(each.start for each in self._links) if all(each.start for each in self._links) else ()

    def _states(self, broker: QueueLink, queues: Sequence[int]) -> list[tuple[int, SourceState]]:
        return [*zip(queues, states(broker.link, [(self._topic, queue) for queue in queues]), strict=True)]

    def sources(self, queue: int) -> SourceState:
        """The queue's sources, as they are now."""
        broker = next(each for each in self._links if queue in each.queues)
        return self._states(broker, [queue])[0][1]

    def last_copied(self, states: Mapping[int, SourceState]) -> dict[int, LastCopied]:
        """By queue, the last record that was copied into it from Kafka; see `last_copied`."""
        found: dict[int, LastCopied] = {}
        for each in self._links:
            found |= last_copied(
                each.link, self._topic, {queue: states[queue] for queue in each.queues if queue in states}
            )
        return found

    def read(
        self, positions: Mapping[int, int], bytes_max: int, wait_ms: int, on_piece: Callable[[AnswerPiece], None],
        queues_max: int = QUEUES_MAX,
    ) -> bool:  # fmt: skip
        """Read on from positions; queues without one begin at their first message after the cut. Whether anything was read.

        Waits up to `wait_ms` where there is nothing, with one broker; each of several is asked without a wait.

        Args:
            queues_max: queues from this number on are not read.
        Raises:
            MessagesDeleted: a position is below the first message.
        """
        found = False
        for broker in self._links:
            queues = [each for each in broker.queues if each < queues_max]
            asked = [ReadPosition(self._topic, each, offset=positions.get(each, self.begin(each))) for each in queues]
            if not asked:
                continue
            wait = wait_ms if len(self._links) == 1 else 0
            answer = self._answer(broker, ReadQuestion(asked, PAGE_RECORDS, bytes_max, wait))
            begins = {}
            for position, report in zip(asked, answer.reports, strict=True):
                if report.code == OFFSET_OUT_OF_RANGE and report.min_offset is not None:
                    begins[position.queue] = self._first(position, report.min_offset, positions)
                elif report.code != OK:
                    raise AdminError(report.code, report.error or f"topic={self._topic} queue={position.queue}: READ")
            if begins:
                again = [ReadPosition(self._topic, queue, offset=offset) for queue, offset in begins.items()]
                later = self._answer(broker, ReadQuestion(again, PAGE_RECORDS, bytes_max))
                pieces = [*answer.pieces(), *later.pieces()]
            else:
                pieces = [*answer.pieces()]
            for piece in pieces:
                on_piece(piece)
            found = found or bool(pieces)
        return found

    def begin(self, queue: int) -> int:
        """Where the copy of a queue begins that has no position."""
        return self.cut.engine_first(queue) if self.cut is not None else 0

    def _answer(self, broker: QueueLink, question: ReadQuestion) -> ReadAnswer:
        code, payload = broker.link.call(READ, question.encode())
        if code != OK:
            raise AdminError(code, payload.decode("utf-8", "replace"))
        return ReadAnswer.decode(payload)

    def _first(self, position: ReadPosition, first: int, positions: Mapping[int, int]) -> int:
        where = f"topic={self._topic} queue={position.queue}"
        if position.queue not in positions or position.offset is None:
            return first
        if first > position.offset:
            raise MessagesDeleted(
                f"{where}: messages {position.offset} to {first - 1} were deleted by retention before they were "
                "copied: an operator sets the copy's position"
            )
        raise MessagesDeleted(
            f"{where}: the copy is at {position.offset}, beyond the end: the engine has lost messages, or it is another "
            "one: an operator sets the copy's position"
        )
