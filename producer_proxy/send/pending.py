"""One message of a send call, with its state between the stages of the rare path."""

from collections.abc import Iterable

from common.contract import Code, SendResult
from common.ids import show_id
from common.wire.calls import Message
from producer_proxy.requests.calls import PassedReply
from producer_proxy.send.results import RETRY_AFTER_MS, refusal
from producer_proxy.targets.base import MessageSlice, SendTarget
from producer_proxy.targets.topics import TopicRoute


class PendingMessage:
    """A message and the findings of the stages. It is open until a stage sets its result.

    Attributes:
        message: as walked. With a fault, all other fields are void.
        target: its topic's target, once the message has passed its checks.
        route: its destination at the target, once resolved.
        assigned_id: 16 bytes, for a message without its own id; assigned when it is first needed.
        reply: set for a reply that was passed on; later stages ignore the message.
        result: the answer; None: open.
        appended: begin and end of its append in Unix nanoseconds, and its code there; zeros: it was not appended.
    """

    __slots__ = ("appended", "assigned_id", "message", "reply", "result", "route", "target")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.target: SendTarget | None = None
        self.route: TopicRoute | None = None
        self.assigned_id: bytes | None = None
        self.reply: PassedReply | None = None
        self.result: SendResult | None = None
        self.appended = 0, 0, 0

    @property
    def is_open(self) -> bool:
        return self.result is None and self.reply is None

    @property
    def shown_id(self) -> str | None:
        """The id that the caller sees; None: the message has none yet."""
        return self.message.id if self.assigned_id is None else show_id(self.assigned_id)

    @property
    def key(self) -> bytes | None:
        key = self.message.key
        return None if key is None else key.encode()

    @property
    def slice(self) -> MessageSlice:
        """The form in which the target takes the message, which is resolved and has an id."""
        assert self.route is not None
        encoded = self.message.encoded
        return MessageSlice(self.route.destination, self.route.binding_of(self.message), self.assigned_id, encoded)

    def refuse(self, code: int, sentence: str | None = None, retry_after_ms: int = RETRY_AFTER_MS) -> None:
        """Set a result for a message that was not stored, or may not be. `sentence`: by default that of the code."""
        self.result = refusal(code, sentence, self.shown_id, retry_after_ms)

    def settle(self, code: int, queue: int | None, offset: int | None, sentence: str | None = None) -> None:
        """Set the result from a target's outcome; see `Outcome`."""
        if code in (Code.OK, Code.DUPLICATE):
            self.result = SendResult(code=code, id=self.shown_id, queue=queue, offset=offset)
        else:
            self.refuse(code, sentence)

    def answer(self) -> SendResult:
        """The result; blocks the greenlet while a reply is in transit."""
        if self.result is None and self.reply is not None:
            self.result = self.reply.wait()
        assert self.result is not None
        return self.result


def open_ones(pending: Iterable[PendingMessage]) -> list[PendingMessage]:
    return [each for each in pending if each.is_open]
