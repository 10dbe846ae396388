"""Requests and replies at one broker group. Steps, tokens and codes: docs/design/0013-request-reply.md. The reference
of `_requests`.

Nothing here blocks: askers and repliers are called back in the loop. All state belongs to calls before their deadline,
so it may end with this process.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol

from common.clock import Clock
from common.contract import Code
from common.reply_token import TOKEN_SIZE, ReplyToken, ReplyTokens, read_token
from common.timer_heap import TimerHeap
from engine.client.rpc import LOST
from engine.link import layout
from engine.link.errors import LinkDown

OUTCOME_MS_MAX = 1_000
OPEN_MAX = 100_000
KEPT_BYTES_MAX = 16 << 20
"""Maximum bytes of kept replies. A reply is kept until its request's deadline, for a repetition under the same id."""
TICK_MS = 5
CLOCKS_MS = 60_000
"""Time by which the clocks of two proxies may differ."""

StoredAt = tuple[str, bytes, bytes, int, int]
"""(application, topic, id, queue, offset) of a stored request. Another application never gets its reply.

An engine with another log may give the same position to another request.
"""


class RequestAsker(Protocol):
    """The sender of a request."""

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        ...

    def tell(self, code: int, reply: bytes | None) -> None:
        """Called at most once, when the request is stored and its outcome is known."""
        ...


class RequestLink(Protocol):
    """A broker's link for rare operations: the interface of RpcClient."""

    def attend(self, on_up: Callable[[], None], on_unasked: Callable[[bytes], None]) -> None: ...

    def send(self, op: int, payload: bytes, callback: Callable[[int, bytes], None]) -> int: ...

    def tell(self, op: int, payload: bytes) -> None: ...


class OpenRequest:
    """One request from its token to its outcome. `code` is set once, to OK with the reply.

    The asker must call `stored()` or `end()` when the append is answered.
    """

    __slots__ = (
        "_asker", "_followers", "_requests", "code", "is_over", "is_stored", "kept_bytes", "links", "place", "reply", "token",
    )  # fmt: skip

    def __init__(self, requests: "OpenRequests", asker: RequestAsker, token: bytes, links: int) -> None:
        self._requests, self._asker, self.token, self.links = requests, asker, token, links
        self._followers: list[OpenRequest] = []
        self.code: int | None = None
        self.reply: bytes | None = None
        self.is_stored = self.is_over = False
        self.place: StoredAt | None = None  # of a request whose id the client set
        self.kept_bytes = 0

    @property
    def waits(self) -> bool:
        """Whether a reply would reach a client."""
        return self.code is None and not self.is_over and self._has_listener

    @property
    def _has_listener(self) -> bool:
        return not self._asker.is_gone or any(each.waits for each in self._followers)

    def stored(self, place: StoredAt | None = None, is_duplicate: bool = False) -> None:
        """Record that the append was answered: the request is in the log.

        Args:
            place: position of a request whose id the client set; the first copy's position for a duplicate.
        """
        self.is_stored = True
        if is_duplicate:
            self._requests.repeated(self, place)
            return
        if place is not None:
            self._requests.remember(self, place)
        if self.code is not None:
            self._tell()
        elif self.is_over:
            self._requests.ask_outcome(self)

    def end(self) -> None:
        """Record that the append failed or was not answered: no client waits for a reply any more."""
        self.is_over = True
        if self.code is None:
            self.code = Code.NO_REPLY

    def settle(self, code: int, reply: bytes | None = None) -> None:
        """Set the outcome, unless it is set."""
        if self.code is None:
            self.code, self.reply = code, reply
            if self.is_stored:
                self._tell()

    def take(self, reply: bytes) -> int:
        """Take a reply; return the code for its replier."""
        if self.code == Code.OK:
            return Code.DUPLICATE
        if not self.waits:
            return Code.STALE_RECEIPT
        self.settle(Code.OK, reply)
        return Code.OK

    def pass_deadline(self) -> None:
        """Expire the request: later replies are late."""
        self.is_over = True
        if self.is_stored and self.code is None:
            if self._has_listener:
                self._requests.ask_outcome(self)
            else:
                self.settle(Code.NO_REPLY)

    def follow(self, first: "OpenRequest") -> None:
        """Join the first copy of this request, which is open or answered: both have one outcome."""
        if first.code is None:
            self.token, self.links = first.token, first.links
            first._followers.append(self)
        else:
            self.settle(first.code, first.reply)

    def _tell(self) -> None:
        assert self.code is not None
        self._asker.tell(self.code, self.reply)
        followers, self._followers = self._followers, []
        for each in followers:
            each.settle(self.code, self.reply)
        if not self._requests.keeps(self):
            self.reply = None


class OpenRequests:
    """The open requests of this process at one broker group, and the replies that it passes on to there.

    Args:
        rpc: the broker's link for rare operations; this object listens on it.
        wake: called when a timer is set; `on_time()` is then called until none is left.
        random_bytes: as os.urandom.
    """

    def __init__(
        self,
        rpc: RequestLink,
        cluster_key: bytes,
        clock: Clock,
        wake: Callable[[], object] = lambda: None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._rpc, self._clock, self._wake = rpc, clock, wake
        self._tokens = ReplyTokens(cluster_key)
        self._instance = int.from_bytes(random_bytes(8), "little")
        self._last_call = 0
        self._calls: dict[int, OpenRequest] = {}
        self._by_place: dict[StoredAt, OpenRequest] = {}
        self._kept_bytes = 0
        self._timers = TimerHeap(TICK_MS)
        self._links = 0
        self.asked = self.late = self.replies = 0
        rpc.attend(self._listen, self._on_forward)

    def move_to(self, rpc: RequestLink) -> None:
        """Use another link to the broker group, whose address has changed. Open requests wait on, and listen there."""
        self._rpc = rpc
        rpc.attend(self._listen, self._on_forward)

    @property
    def waiting(self) -> int:
        """Requests whose deadline has not passed; some of them have been answered."""
        return len(self._calls)

    @property
    def is_idle(self) -> bool:
        """Whether no client waits for a reply."""
        return not any(each.waits for each in self._calls.values())

    # -- the asker's side

    def open(self, asker: RequestAsker, wait_ms: int) -> OpenRequest | None:
        """Register a request before its append, with the token as its trailer; None: too many are open."""
        if len(self._calls) >= OPEN_MAX:
            return None
        self.asked += 1
        self._last_call = number = self._last_call % 0xFFFFFFFF + 1
        token = self._tokens.make(ReplyToken(number, self._instance, self._clock.now_ms() + wait_ms, wait_ms))
        opened = self._calls[number] = OpenRequest(self, asker, token, self._links)
        self._after(wait_ms, partial(self._over, number))
        return opened

    def release(self) -> None:
        """At the end of the process, answer waiting clients that the outcome is unknown."""
        for each in list(self._calls.values()):
            if each.waits:
                each.settle(Code.TIMEOUT)

    def on_time(self) -> bool:
        """Run due timers; returns True while any is left."""
        for act in self._timers.pop_due(self._now_ms()):
            act()
        return self._timers.next_at_ms() is not None

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    def _after(self, wait_ms: int, act: Callable[[], None]) -> int:
        self._wake()
        return self._timers.schedule(self._now_ms() + wait_ms, act)

    def _over(self, number: int) -> None:
        passed = self._calls.pop(number)
        passed.pass_deadline()
        if passed.place is not None:
            self._by_place.pop(passed.place, None)
            self._kept_bytes -= passed.kept_bytes

    # -- called by open requests

    def remember(self, stored: OpenRequest, place: StoredAt) -> None:
        """Keep the request until its deadline: it may be sent again under its id."""
        if not stored.is_over:
            stored.place = place
            self._by_place[place] = stored

    def keeps(self, answered: OpenRequest) -> bool:
        """Whether the reply is kept; called once, when the reply has arrived."""
        size = len(answered.reply or b"")
        if answered.place is None or answered.is_over or self._kept_bytes + size > KEPT_BYTES_MAX:
            return False
        answered.kept_bytes = size
        self._kept_bytes += size
        return True

    def repeated(self, copy: OpenRequest, place: StoredAt | None) -> None:
        """Join the request stored at `place`: only the first copy is delivered."""
        first = self._by_place.get(place) if place is not None else None
        if first is not None and (first.code is None or first.reply is not None):
            copy.follow(first)
        else:
            copy.settle(Code.DUPLICATE)

    def ask_outcome(self, over: OpenRequest) -> None:
        """Ask the engine for the outcome of a request whose deadline has passed without a reply."""
        if over.links != self._links:
            over.settle(Code.NO_REPLY)  # a restarted engine has forgotten the request
            return

        def answered(code: int, answer: bytes) -> None:
            over.settle(layout.U16.unpack(answer)[0] if code == layout.OK else Code.NO_REPLY)

        try:
            self._rpc.send(layout.OUTCOME, over.token, answered)
        except LinkDown:
            over.settle(Code.NO_REPLY)
        else:
            self._after(OUTCOME_MS_MAX, partial(over.settle, Code.NO_REPLY))

    # -- messages from the broker

    def _listen(self) -> None:
        self._links += 1
        self._rpc.send(layout.LISTEN, layout.INSTANCE.pack(self._instance), lambda code, answer: None)

    def _on_forward(self, payload: bytes) -> None:
        number, code = layout.FORWARD_HEAD.unpack_from(payload)
        at = layout.FORWARD_HEAD.size
        token = read_token(payload[at : at + TOKEN_SIZE])
        found = self._calls.get(token.call) if token is not None else None
        if code == layout.OK:
            told = Code.STALE_RECEIPT if found is None else found.take(payload[at + TOKEN_SIZE :])
            self.late += told == Code.STALE_RECEIPT
            self._rpc.tell(layout.FORWARDED, layout.FORWARDED_BODY.pack(number, told))
        elif found is not None and found.waits:
            found.settle(code)

    # -- the replier's side

    def pass_on(
        self, data: bytes, reply_key: bytes, reply: bytes, told: Callable[[int], None], timeout_ms: int
    ) -> int | None:
        """Send a reply to the waiting client's proxy. Returns the code if it is known at once; else `told(code)` is
        called once.

        Args:
            data: the token as it came. reply_key: of the replier's application. reply: a Message without reply_to, encoded.
            timeout_ms: time after which `told` gets TIMEOUT.
        """
        stored = self._tokens.unbind(data, reply_key)
        token = None if stored is None else read_token(stored)
        if stored is None or token is None:
            return Code.INVALID
        if token.reply_by_ms + CLOCKS_MS <= self._clock.now_ms():  # else the waiting proxy knows
            self.late += 1
            return Code.STALE_RECEIPT
        passing = _ReplyInFlight(self._timers, told)
        try:
            self._rpc.send(layout.REPLY, stored + reply, passing.answered)
        except LinkDown:
            return Code.UNAVAILABLE
        passing.tick = self._after(timeout_ms, passing.give_up)
        self.replies += 1
        return None


class _ReplyInFlight:
    """A reply in transit to its asker's proxy."""

    __slots__ = ("_timers", "_told", "give_up", "tick")

    def __init__(self, timers: TimerHeap, told: Callable[[int], None]) -> None:
        self._timers, self._told = timers, told
        self.tick = 0
        self.give_up = partial(self.answered, Code.TIMEOUT, b"")

    def answered(self, code: int, sentence: bytes) -> None:
        """Take the broker's answer, or TIMEOUT without one: the reply may have been passed on."""
        told, self._told = self._told, _ignore
        self._timers.cancel(self.tick, self.give_up)
        told(int(Code.TIMEOUT) if sentence is LOST else code)


def _ignore(code: int) -> None:
    """Ignores later codes: the code was already reported."""
