"""A pull between its arrival and its reply."""

from typing import Any

from common.limits import Meter
from consumer_proxy.call import Call
from consumer_proxy.pull.positions import PositionPull
from engine.link.pull import NOTHING, PullAnswer, PullScope


class OpenPull:
    """One open call.

    Attributes:
        connection: None after the reply was sent or the client has left.
        scope: group and topics, by which the source finds the queue of an acknowledgement.
        handle: the source's handle to cancel the open question.
        tick: tick of the deadline.
        position_read: state of a read by position.
        acked: codes of the acknowledgements that preceded a read.
        meter: meter of the group's rate limit, charged with the deliveries.
        was_held: whether the rate limit has held the call once.
    """

    __slots__ = (
        "acked", "call", "connection", "deadline_s", "handle", "meter", "position_read", "scope", "started_s", "tick",
        "was_held",
    )  # fmt: skip

    def __init__(self, connection: Any, call: Call, started_s: float, deadline_s: float) -> None:
        self.connection = connection
        self.call = call
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.scope: PullScope | None = None
        self.handle: Any = None
        self.tick = 0
        self.position_read: PositionPull | None = None
        self.acked: PullAnswer = NOTHING
        self.meter: Meter | None = None
        self.was_held = False
