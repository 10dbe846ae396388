"""Requests to one broker over one shared link. The request id assigns each answer to its caller, in any order."""

import json
import logging
import socket
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from gevent import socket as gevent_socket
from gevent.event import AsyncResult, Event

from common.address import Address
from common.limited_log import LimitedLog
from common.twins import use_native
from engine.client.dial import Admits, Hello, admit_all, dial
from engine.link.codes import TIMEOUT, UNAVAILABLE
from engine.link.errors import LinkDown, LinkError, PayloadError
from engine.link.frame import UNASKED
from engine.link.operations import CANCEL

NATIVE = use_native("engine.client", "_transport")
if NATIVE and not TYPE_CHECKING:
    from engine.client._transport import Transport
else:
    from engine.client.transport import Transport

limited = LimitedLog(logging.getLogger("penstock.engine.client"))
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.01, 1.0

Callback = Callable[[int, bytes], None]
LOST = b"the link to the engine broke; the request may have been executed"
"""The sentence of a request whose link broke. By this very object it is told from an engine's answer."""


class RpcLink(Protocol):
    """Requests to one broker group: an RpcClient to its only broker, or a MasterClient to the master of several."""

    hello: Hello | None

    @property
    def connected(self) -> bool: ...
    @property
    def seeks_master(self) -> bool:
        """Whether requests wait here until a master is found."""

    def send(self, op: int, payload: bytes, callback: Callback) -> int: ...
    def tell(self, op: int, payload: bytes) -> None: ...
    def share_window(self, window: int, links: int) -> None: ...
    def attend(self, on_up: Callable[[], None], on_unasked: Callable[[bytes], None]) -> None: ...
    def cancel(self, request_id: int) -> None: ...
    def call(self, op: int, payload: bytes, timeout_s: float) -> tuple[int, bytes]: ...
    def reconnect(self, reason: str) -> None: ...
    def close(self) -> None: ...


class RpcClient:
    """A link that reconnects, with back-off, until `close()`.

    Args:
        pause_s_max: longest pause between two tries to connect.
        on_hello: called with the Hello of each new connection, before it is used.
        admits: asked about the engine of each new connection; may block. One that is refused counts as away.
        on_down: called when the connection has closed, before the callbacks of open requests.
    Attributes:
        hello: of the present connection, or of the last one; None: there was none yet.
    """

    def __init__(
        self, address: tuple[str, int], cluster_key: bytes, *, role: str,
        on_hello: Callable[[Hello], None] = lambda hello: None, on_down: Callable[[], None] = lambda: None,
        admits: Admits = admit_all, pause_s_max: float = BACKOFF_S_MAX,
    ) -> None:  # fmt: skip
        self._address, self._cluster_key, self._role, self._admits = Address(*address), cluster_key, role, admits
        self._pause_s_max, self._hurried = pause_s_max, Event()
        self._on_hello, self._told_down = on_hello, on_down
        self.hello: Hello | None = None
        self._on_up: Callable[[], None] = lambda: None
        self._on_unasked: Callable[[bytes], None] = lambda payload: None
        self._transport: Transport | None = None
        self._waiting: dict[int, Callback] = {}
        self._last_id = 0
        self._up = Event()
        self._closed = False
        self._window, self._links = 0, 1
        self._dialler = gevent.spawn(self._dial_until_up)

    @property
    def connected(self) -> bool:
        """Whether the link is up, so that `send` would send."""
        return self._transport is not None

    @property
    def seeks_master(self) -> bool:
        """Never: there is one broker."""
        return False

    def hurry(self) -> None:
        """Try to connect at once, and often again, if the link is down."""
        self._hurried.set()

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Block this greenlet until the link is up; False after `timeout_s`."""
        return self._up.wait(timeout_s) is True

    def send(self, op: int, payload: bytes, callback: Callback) -> int:
        """Send without blocking. `callback(code, payload)` is called once, later, in the loop; it must not block.

        When the link breaks meanwhile the code is UNAVAILABLE: the broker may have executed the request or not.

        Returns: the request id, for `cancel()`. Raises: LinkDown.
        """
        if self._transport is None:
            raise LinkDown(f"engine={self._address}: not connected")
        self._last_id = request_id = self._last_id % 0xFFFFFFFF + 1
        self._waiting[request_id] = callback
        self._transport.post(op, request_id, payload)
        return request_id

    def tell(self, op: int, payload: bytes) -> None:
        """Send a frame that has no answer. Without a link it is lost."""
        if self._transport is not None:
            self._transport.post(op, UNASKED, payload)

    def share_window(self, window: int, links: int) -> None:
        """Take answers with messages while less than `window` bytes of answers wait for clients of this process.

        Args:
            links: number of links that share the window.
        """
        self._window, self._links = window, links
        if self._transport is not None:
            self._transport.share_window(window, links)

    def attend(self, on_up: Callable[[], None], on_unasked: Callable[[bytes], None]) -> None:
        """Call `on_up()` each time the link comes up, and `on_unasked(payload)` for frames that answer no request."""
        self._on_up, self._on_unasked = on_up, on_unasked
        if self.connected:
            on_up()

    def cancel(self, request_id: int) -> None:
        """Withdraw a PULL or READ that waits at the broker. It is answered at once with the records found so far."""
        if self._transport is not None and request_id in self._waiting:
            self._transport.post(CANCEL, request_id, b"")

    def call(self, op: int, payload: bytes, timeout_s: float) -> tuple[int, bytes]:
        """See call_over()."""
        return call_over(self, self._up, self._waiting, op, payload, timeout_s)

    def reconnect(self, reason: str) -> None:
        """Close the connection and open another one; open requests get UNAVAILABLE."""
        if self._transport is not None:
            self._transport.close(reason)

    def close(self) -> None:
        """Close the link permanently; open requests get UNAVAILABLE."""
        self._closed = True
        self._dialler.kill(block=False)
        if self._transport is not None:
            self._transport.close("closed")

    def _dial_until_up(self) -> None:
        pause_s, told = BACKOFF_S_MIN, ""
        while not self._closed:
            try:
                sock, hello = dial(self._address, self._cluster_key, role=self._role, sockets=gevent_socket)
                if refusal := self._admits(hello):
                    sock.close()
                    raise LinkError(refusal)
            except (OSError, LinkError) as error:
                before, told = told, str(error)
                if told != before:  # an engine that was away may refuse this process once it is back
                    limited.warning(
                        "engine=%s: not connected: %s", self._address, error, about=f"{self._address} {told[:80]}"
                    )
                pause_s = BACKOFF_S_MIN if self._hurried.wait(pause_s) else min(self._pause_s_max, pause_s * 2)
                self._hurried.clear()
                continue
            self._use(sock, hello)
            break

    def _use(self, sock: socket.socket, hello: Hello) -> None:
        self.hello = hello
        self._on_hello(hello)
        # on_down is called in the next loop turn at the earliest, when _transport is set.
        self._transport = Transport(sock, f"{self._address}", self._on_answer, self._on_down)
        if self._window:
            self._transport.share_window(self._window, self._links)
        self._up.set()
        self._on_up()

    def _on_answer(self, request_id: int, code: int, payload: bytes) -> None:
        if request_id == UNASKED:
            self._on_unasked(payload)
            return
        callback = self._waiting.pop(request_id, None)
        if callback is None:
            return
        try:
            callback(code, payload)
        except (PayloadError, json.JSONDecodeError, UnicodeDecodeError) as error:
            limited.error("engine=%s: damaged answer: %s", self._address, error)
            callback(UNAVAILABLE, b"the engine's answer is damaged; the request may have been executed")

    def _on_down(self) -> None:
        self._transport = None
        self._up.clear()
        waiting, self._waiting = self._waiting, {}
        if not self._closed:
            self._dialler = gevent.spawn(self._dial_until_up)
        # Not called from here: send() may find the connection closed, and its caller does not expect the callback yet.
        gevent.get_hub().loop.run_callback(_tell_lost, waiting)
        self._told_down()


def call_over(
    link: RpcLink, up: Event, waiting: MutableMapping[int, Any], op: int, payload: bytes, timeout_s: float
) -> tuple[int, bytes]:
    """Send and block this greenlet for (code, payload); with an error code the payload is a sentence.

    Waits for the link to come up within the same time. UNAVAILABLE when it stays down, TIMEOUT when no answer arrives.

    Args:
        up: set while the link is up.
        waiting: the link's open requests; one that timed out is forgotten.
    """
    timer = gevent.Timeout(timeout_s)
    timer.start()
    sent = False
    try:
        up.wait()
        result: AsyncResult = AsyncResult()
        request_id = link.send(op, payload, lambda code, answer: result.set((code, answer)))
        sent = True
        return result.get()
    except LinkDown as down:
        return UNAVAILABLE, str(down).encode()
    except gevent.Timeout as over:
        if over is not timer:
            raise
        if not sent:
            return UNAVAILABLE, b"the engine cannot be reached"
        waiting.pop(request_id, None)
        return TIMEOUT, b"the engine did not answer in time"
    finally:
        timer.close()


def _tell_lost(waiting: dict[int, Callback]) -> None:
    for callback in waiting.values():
        try:
            callback(UNAVAILABLE, LOST)
        except Exception:
            limited.exception("a callback failed when the link broke")
