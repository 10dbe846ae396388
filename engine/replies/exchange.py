"""The way of replies: from the link of the replier's proxy to the link of the proxy that waits, and the word how it went back."""

from typing import Any, NamedTuple

from common.reply_token import TOKEN_SIZE, instance_of
from common.timer_heap import TimerHeap
from engine.link import layout
from engine.replies.requests import Requests
from engine.server.errors import RequestError

ANSWER_MS_MAX = 3_000
OPEN_MAX = 100_000


class _Open(NamedTuple):
    """A reply that was forwarded and not confirmed yet."""

    replier: Any
    request_id: int
    waiting: Any
    token: bytes
    tick: int


class Exchange:
    """Link operations 45 to 49. Connections are those of `engine.server.service`; all runs in the loop."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        requests.on_failed = self._tell_failed
        self.forwarded = 0
        self._by_instance: dict[int, Any] = {}
        self._open: dict[int, _Open] = {}
        self._number = 0
        self._waits = TimerHeap(100)

    def listen(self, connection: Any, request_id: int, payload: bytes) -> None:
        """LISTEN: replies to calls of this instance go to this link from now on."""
        if len(payload) != layout.INSTANCE.size:
            raise RequestError("LISTEN: 8 bytes of instance")
        (instance,) = layout.INSTANCE.unpack(payload)
        self._by_instance[instance] = connection
        connection.peer_state.instance = instance
        connection.send_frame(layout.LISTEN, request_id, layout.OK, [])

    def on_closed(self, connection: Any) -> None:
        """The link has gone: what was forwarded over it may have arrived or not."""
        instance = connection.peer_state.instance
        if self._by_instance.get(instance) is connection:
            del self._by_instance[instance]
        if instance is not None:
            for number in [number for number, each in self._open.items() if each.waiting is connection]:
                self._answer(number, layout.TIMEOUT)

    def reply(self, connection: Any, request_id: int, payload: bytes, now_ms: int) -> bool:
        """REPLY: forward it; answered when the waiting proxy says how it went. True when time has to be watched."""
        instance = instance_of(payload) if len(payload) > TOKEN_SIZE else None
        if instance is None:
            raise RequestError("REPLY: a token, then the reply")
        target = self._by_instance.get(instance)
        if target is None or len(self._open) >= OPEN_MAX:
            sentence = b"the proxy that waits for this reply is not linked at the moment"
            connection.send_frame(layout.REPLY, request_id, layout.UNAVAILABLE, [sentence])
            return False
        self._number = self._number % 0xFFFFFFFF + 1
        tick = self._waits.schedule(now_ms + ANSWER_MS_MAX, self._number)
        self._open[self._number] = _Open(connection, request_id, target, payload[:TOKEN_SIZE], tick)
        head = layout.FORWARD_HEAD.pack(self._number, layout.OK)
        target.send_frame(layout.FORWARD, layout.UNASKED, layout.OK, [head, payload])
        self.forwarded += 1
        return True

    def confirmed(self, connection: Any, request_id: int, payload: bytes) -> None:
        """FORWARDED: how a reply went. Not answered."""
        if len(payload) != layout.FORWARDED_BODY.size:
            raise RequestError("FORWARDED: the number of a reply, then a code")
        number, code = layout.FORWARDED_BODY.unpack(payload)
        found = self._open.get(number)
        if found is not None and found.waiting is connection:
            if code in (layout.OK, layout.DUPLICATE):
                self.requests.answered(found.token)
            self._answer(number, code)

    def outcome(self, connection: Any, request_id: int, payload: bytes) -> None:
        """OUTCOME: why a request got no reply."""
        code = self.requests.outcome(payload)
        connection.send_frame(layout.OUTCOME, request_id, layout.OK, [layout.U16.pack(code)])

    def on_time(self, now_ms: int) -> bool:
        """Give up on what was not confirmed; True while something is open."""
        for number in self._waits.pop_due(now_ms):
            self._answer(number, layout.TIMEOUT)
        return bool(self._open)

    def _answer(self, number: int, code: int) -> None:
        found = self._open.pop(number)
        self._waits.cancel(found.tick, number)
        sentence = [b"the waiting proxy did not confirm the reply"] if code == layout.TIMEOUT else []
        found.replier.send_frame(layout.REPLY, found.request_id, code, sentence)

    def _tell_failed(self, data: bytes) -> None:
        instance = instance_of(data)
        target = self._by_instance.get(instance) if instance is not None else None
        if target is not None:
            head = layout.FORWARD_HEAD.pack(0, layout.CONSUMER_FAILED)
            target.send_frame(layout.FORWARD, layout.UNASKED, layout.OK, [head, data])
