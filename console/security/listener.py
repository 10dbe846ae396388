"""The console's HTTP server: bounds for peers that are slow, silent or unknown, on waitress.

waitress waits 120 s after each byte, takes no further connection beyond its limit, and keeps bodies before a page can
refuse them. Here a request has one deadline, a new connection pushes out the one that waits longest, and a body without
a session or a token is small.
"""

import heapq
import time
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher
from waitress.utilities import RequestEntityTooLarge

CONNECTIONS_MAX = 500
PUSHED_OUT = 16
"""Connections that are closed at once when all places are taken."""
WAIT_S = 30.0
"""Time for a request, from its first byte to its last; for the first byte of one; and for the next byte of an answer to be taken."""
CHECK_S = 1.0
VISITOR_BYTES_MAX = 64 << 10
"""Body of a request that shows neither a cookie nor a token. Larger bodies of others wait in files, not in memory."""
OUTPUT_BYTES_MAX = 1 << 20
"""Output of a connection above which its page waits for the reader."""
HEADER_BYTES_MAX = 32 << 10


class PageRequest(HTTPRequestParser):
    """A request as it comes in."""

    error: Any = None
    path = ""  # waitress logs it when the client of a request has left, also where no path was found in it

    def received(self, data: bytes) -> int:
        taken: int = super().received(data)
        is_large = max(self.content_length, self.body_bytes_received) > VISITOR_BYTES_MAX
        if is_large and self.error is None and not self._shows_credential():
            self.error = RequestEntityTooLarge(f"at most {VISITOR_BYTES_MAX} bytes before you have signed in")
            self.completed = True
        return taken

    def _shows_credential(self) -> bool:
        return "AUTHORIZATION" in self.headers or "penstock=" in self.headers.get("COOKIE", "")


class PageConnection(HTTPChannel):
    """
    Attributes:
        waits_since: the current request, or the wait for one, began then.
    """

    parser_class = PageRequest

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.waits_since = time.time()
        super().__init__(*arguments, **named)

    def received(self, data: bytes) -> bool:
        if self.request is None:
            self.waits_since = time.time()
        taken: bool = super().received(data)
        return taken

    def readable(self) -> bool:
        return bool(self.connected and super().readable())  # a closed one may still be in the loop's list of this turn

    def writable(self) -> bool:
        return bool(self.connected and super().writable())

    @property
    def awaits_request(self) -> bool:
        """Whether the peer has to send before anything happens. Pages in work and answers on their way are no waits."""
        return not self.requests and not self.total_outbufs_len

    def is_late(self, now: float) -> bool:
        """Whether the peer has not done its part in time."""
        if self.awaits_request:
            return now - max(self.waits_since, 0 if self.request is not None else self.last_activity) > WAIT_S
        return bool(self.total_outbufs_len) and now - self.last_activity > WAIT_S


class PageServer(TcpWSGIServer):
    """The listener of the console."""

    channel_class = PageConnection

    def readable(self) -> bool:
        if len(self._map) >= self.adj.connection_limit:
            waiting = [each for each in self.active_channels.values() if each.awaits_request]
            for each in heapq.nsmallest(PUSHED_OUT, waiting, key=lambda each: each.waits_since):
                each.handle_close()
        is_readable: bool = super().readable()
        return is_readable

    def maintenance(self, now: float) -> None:
        for each in list(self.active_channels.values()):
            if each.is_late(now):
                each.handle_close()  # `will_close` would wait until the socket takes something


def page_server(
    application: Any, host: str, port: int, threads: int, body_bytes_max: int, trusted_proxy: str
) -> PageServer:
    """A listening server; its run() serves. Raises OSError."""
    trusted: dict[str, Any] = {"trusted_proxy": trusted_proxy, "trusted_proxy_headers": {"x-forwarded-for"}}
    settings = Adjustments(
        host=host, port=port, threads=threads, ident=None, max_request_body_size=body_bytes_max,
        max_request_header_size=HEADER_BYTES_MAX, connection_limit=CONNECTIONS_MAX, cleanup_interval=CHECK_S,
        inbuf_overflow=VISITOR_BYTES_MAX, outbuf_high_watermark=OUTPUT_BYTES_MAX, **(trusted if trusted_proxy else {}),
    )  # fmt: skip
    pages = ThreadedTaskDispatcher()
    pages.set_thread_count(threads)
    return PageServer(application, map={}, dispatcher=pages, adj=settings, sockinfo=settings.listen[0])
