"""Forwarding of replies: from the replier's proxy to the waiting proxy, and the outcome back."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from common.reply_token import TOKEN_SIZE, instance_of
from common.timer_heap import TimerHeap
from engine.link import layout
from engine.replies.requests import Requests

CONFIRM_MS_MAX = 3_000
"""Time in which a waiting proxy has to confirm a reply; after it, the replier gets TIMEOUT."""
OPEN_MAX = 100_000
"""Replies forwarded and not confirmed; more are refused."""
NO_LISTENER = b"REPLY: the proxy that waits for this reply is not connected to this engine: retry"
NOT_CONFIRMED = b"REPLY: the waiting proxy did not confirm the reply"


class ReplyLink(Protocol):
    """A link connection, as far as replies need it."""

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None: ...


class ForwardedReply(NamedTuple):
    """A reply that was forwarded and is not confirmed yet."""

    replier: ReplyLink
    request_id: int
    waiting: ReplyLink
    token: bytes
    tick: int


class Exchange:
    """Replies of one engine. All methods belong to the loop's thread.

    Args:
        wall_ms, monotonic_ms: the clocks by which requests are stored and remembered.
        newest_ms: the log's newest time.

    Attributes:
        requests: what delivery reports and asks about requests.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], newest_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self.requests = Requests(wall_ms, monotonic_ms, self._tell_failed, newest_ms)
        self.forwarded = 0
        self._by_instance: dict[int, ReplyLink] = {}
        self._instances: dict[ReplyLink, int] = {}
        self._open: dict[int, ForwardedReply] = {}
        self._number = 0
        self._waits = TimerHeap(100)

    def listen(self, link: ReplyLink, instance: int) -> None:
        """Send replies to calls of this proxy instance over this link from now on."""
        self._by_instance[instance] = link
        self._instances[link] = instance

    def on_closed(self, link: ReplyLink) -> None:
        """Handle a closed link: replies forwarded over it may have arrived or not."""
        instance = self._instances.pop(link, None)
        if instance is None:
            return
        if self._by_instance.get(instance) is link:
            del self._by_instance[instance]
        for number in [number for number, each in self._open.items() if each.waiting is link]:
            self._answer(number, layout.TIMEOUT)

    def reply(self, link: ReplyLink, request_id: int, instance: int, payload: bytes, now_ms: int) -> bool:
        """Forward a token and its reply to the instance; the REPLY is answered once that confirms.

        True while time matters.
        """
        target = self._by_instance.get(instance)
        if target is None or len(self._open) >= OPEN_MAX:
            link.send_frame(layout.REPLY, request_id, layout.UNAVAILABLE, [NO_LISTENER])
            return False
        self._number = self._number % 0xFFFFFFFF + 1
        tick = self._waits.schedule(now_ms + CONFIRM_MS_MAX, self._number)
        self._open[self._number] = ForwardedReply(link, request_id, target, payload[:TOKEN_SIZE], tick)
        head = layout.FORWARD_HEAD.pack(self._number, layout.OK)
        target.send_frame(layout.FORWARD, layout.UNASKED, layout.OK, [head, payload])
        self.forwarded += 1
        return True

    def confirmed(self, link: ReplyLink, number: int, code: int) -> None:
        """Pass on the waiting proxy's confirmation or refusal of the reply of that number."""
        found = self._open.get(number)
        if found is not None and found.waiting is link:
            if code in (layout.OK, layout.DUPLICATE):
                self.requests.answered(found.token)
            self._answer(number, code)

    def on_time(self, now_ms: int) -> bool:
        """Answer TIMEOUT for replies that were not confirmed in time; True while replies are open."""
        for number in self._waits.pop_due(now_ms):
            self._answer(number, layout.TIMEOUT)
        return bool(self._open)

    def _answer(self, number: int, code: int) -> None:
        found = self._open.pop(number)
        self._waits.cancel(found.tick, number)
        sentence = [NOT_CONFIRMED] if code == layout.TIMEOUT else []
        found.replier.send_frame(layout.REPLY, found.request_id, code, sentence)

    def _tell_failed(self, token: bytes) -> None:
        instance = instance_of(token)
        target = self._by_instance.get(instance) if instance is not None else None
        if target is not None:
            head = layout.FORWARD_HEAD.pack(0, layout.CONSUMER_FAILED)
            target.send_frame(layout.FORWARD, layout.UNASKED, layout.OK, [head, token])
