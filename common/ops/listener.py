"""HTTP listener of an operators' port: bounded in connections, in time and in log lines.

A request has to come, and an answer to be taken, in time. A new connection beyond CONNECTIONS_MAX closes the one that
waits longest for its peer, so that a health check finds a place whatever others do.
"""

import io
import logging
import socket
from collections import OrderedDict
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from common.limited_log import LimitedLog

log = logging.getLogger("penstock.ops")
limited = LimitedLog(log)

CONNECTIONS_MAX = 64
BODY_BYTES_MAX = 1 << 10
DEADLINE_S = 10.0
"""Time for a request, from the answer before it to its last byte; and for an answer to be taken."""
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class OpsHandler(WSGIHandler):
    """One connection. What its peer does wrong ends it, and is no error of this process."""

    def handle(self) -> None:
        try:
            super().handle()
        except OSError as error:
            log.debug("connection=%s: closed: %s", self.client_address, error)
        finally:
            self.server.waiting.pop(self, None)

    def handle_one_request(self) -> Any:
        self.server.waiting[self] = gevent.getcurrent()
        self._deadline = gevent.Timeout.start_new(DEADLINE_S)
        try:
            return super().handle_one_request()
        except gevent.Timeout as timeout:
            if timeout is not self._deadline:
                raise
            return None
        finally:
            self._deadline.close()

    def read_request(self, raw_requestline: str) -> bool:
        is_valid: bool = super().read_request(raw_requestline)
        if "transfer-encoding" in self.headers or (self.content_length or 0) > BODY_BYTES_MAX:
            raise ValueError(f"body: at most {BODY_BYTES_MAX} bytes with a Content-Length")
        return is_valid

    def get_environ(self) -> dict[str, Any]:
        """The request's environment, with its whole body: no page waits for the peer."""
        environ: dict[str, Any] = super().get_environ()
        environ["wsgi.input"] = io.BytesIO(self.wsgi_input.read())
        self._deadline.close()
        self.server.waiting.pop(self, None)
        return environ

    def _sendall(self, data: bytes) -> None:
        self.server.waiting[self] = gevent.getcurrent()
        super()._sendall(data)
        self.server.waiting.pop(self, None)

    def _handle_client_error(self, ex: Exception) -> Any:
        if isinstance(ex, OSError):
            return None
        limited.info("connection=%s: refused a request: %s", self.client_address, ex)
        return "400", BAD_REQUEST

    def handle_error(self, t: Any, v: Any, tb: Any) -> None:
        self.close_connection = True
        if not issubclass(t, OSError | gevent.GreenletExit):
            limited.exception("page=%s: failed", self.path)
            self._send_error_response_if_possible(500)


class OpsListener(WSGIServer):
    """
    Attributes:
        waiting: handler -> greenlet of the connections that wait for their peer, the longest waiting first.
    """

    handler_class = OpsHandler

    def __init__(self, address: tuple[str, int], application: Any) -> None:
        self.waiting: OrderedDict[OpsHandler, gevent.Greenlet] = OrderedDict()
        super().__init__(address, application, log=None, error_log=log, spawn=Pool(CONNECTIONS_MAX + 1))

    def handle(self, sock: socket.socket, address: Any) -> None:
        if self.pool.free_count() == 0 and self.waiting:
            handler, greenlet = self.waiting.popitem(last=False)
            limited.warning(
                "connection=%s: closed to make room: more than %d connections to the operators' port",
                handler.client_address, CONNECTIONS_MAX,
            )  # fmt: skip
            greenlet.kill(block=False)
        sock.settimeout(DEADLINE_S)
        try:
            # Without it, Nagle and delayed acknowledgements delay every keep-alive answer by 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # the peer has reset the connection
            sock.close()
            return
        super().handle(sock, address)
