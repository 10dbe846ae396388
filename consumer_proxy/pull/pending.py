"""A pull whose answer has yet to come."""

from typing import Any

from common.limits import Meter
from consumer_proxy.pull.call import Call


class Pending:
    """One call between its arrival and its reply.

    `connection` is None from the moment on when nobody is to be answered any more: the reply is out, or the client has left.
    """

    __slots__ = (
        "bucket", "call", "codes", "connection", "deadline_s", "handle", "meter", "reading", "started_s", "topics", "was_held",
    )  # fmt: skip

    def __init__(self, connection: Any, call: Call, started_s: float, deadline_s: float):
        self.connection = connection
        self.call = call
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.topics = b"\0\0"  # encoded; what the engine needs to find the place of an acknowledgement
        self.handle: Any = None
        self.bucket = 0
        self.reading: Any = None  # of a read by position: its Reading
        self.codes = b""  # and the ack codes that came before it, with their count in front
        self.meter: Meter | None = None  # of the group's rate limit, which its deliveries are taken from
        self.was_held = False
