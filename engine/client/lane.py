"""A lane: messages on their way to one broker. The reference of `_lane`: same answers, same bytes.

One greenlet per link reads, and one per append writes.
"""

from collections.abc import Callable

import gevent
from gevent import socket as gevent_socket

from engine.client.lane_core import FRAME_BYTES_MAX, SHARE_ALL, LaneCore

__all__ = ["FRAME_BYTES_MAX", "SHARE_ALL", "Lane"]


class Lane(LaneCore):
    """See LaneCore."""

    def _open(self, fd: int) -> gevent_socket.socket:
        link = gevent_socket.socket(fileno=fd)
        gevent.spawn(self._read, link)
        return link

    def _soon(self, call: Callable[[], None]) -> None:
        gevent.get_hub().loop.run_callback(call)

    def _write(self, link: gevent_socket.socket, frames: bytes) -> None:
        gevent.spawn(self._write_out, link, frames)

    def _write_out(self, link: gevent_socket.socket, frames: bytes) -> None:
        try:
            link.sendall(frames)
        except OSError:
            self._lost(link)

    def _read(self, link: gevent_socket.socket) -> None:
        pending = bytearray()
        try:
            while data := link.recv(65_536):
                pending += data
                while len(pending) >= 4 and len(pending) >= (size := 4 + int.from_bytes(pending[:4], "little")):
                    self._answered(bytes(pending[:size]))
                    del pending[:size]
        except OSError:
            pass
        self._lost(link)
