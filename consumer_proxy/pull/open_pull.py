"""A pull between its arrival and its reply."""

from typing import Any

from common.limits import Meter
from consumer_proxy.call import Call
from consumer_proxy.pull.positions import PositionPull
from consumer_proxy.pull.recent_deliveries import Replies
from engine.link.acknowledgement import NO_ACKS
from engine.link.pull import NOTHING, PullAnswer, PullScope


class OpenPull:
    """One open call.

    Attributes:
        connection: None after the reply was sent or the client has left.
        scope: group and topics, by which the source finds the queue of an acknowledgement.
        admitted: verdict by which it was asked; None: of a read by position, or of acknowledgements alone.
        generation: of the configuration by which it was admitted last; None: it needs no permission any more.
        expires_at_ms: end of its credential.
        handle: the source's handle to cancel the open question.
        tick: tick of the deadline.
        position_read: state of a read by position.
        acked: codes of the acknowledgements that preceded a read.
        meter: meter of the group's rate limit, charged with the deliveries.
        held: encoded ranges that release what the reply carried, while it may still be unsent.
        reply_end: position in the connection's output after which the reply has left.
        earlier: the connection's pull before this one, while its reply may still be unsent.
        replies: the connection's last replies with messages, this pull's own one included once it is made.
        reply_key: key of the reply tokens in the deliveries.
        told: fields 7 and 8 of the response: topics that are not defined, the lease time that the call left open.
        sources: table of the deliveries' sources; empty: they have none.
        trace: its consumer_proxy.pull.tracing.PullTrace; None: nothing is traced.
        was_held: whether the rate limit has held the call once.
    """

    __slots__ = (
        "acked", "admitted", "call", "connection", "deadline_s", "earlier", "expires_at_ms", "generation",
        "handle", "held", "meter", "position_read", "replies",
        "reply_end", "reply_key", "scope", "sources", "started_s", "tick", "told", "trace", "was_held",
    )  # fmt: skip

    def __init__(self, connection: Any, call: Call, started_s: float, deadline_s: float) -> None:
        self.connection = connection
        self.call = call
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.scope: PullScope | None = None
        self.admitted: Any = None
        self.generation: int | None = None
        self.expires_at_ms = 0
        self.handle: Any = None
        self.tick = 0
        self.position_read: PositionPull | None = None
        self.acked: PullAnswer = NOTHING
        self.meter: Meter | None = None
        self.held = NO_ACKS.encoded
        self.told = self.reply_key = self.sources = b""
        self.was_held = False
        self.trace: Any = None
        self.reply_end = 0
        self.earlier: OpenPull | None = None
        self.replies: Replies = ()

    def follow(self, before: "OpenPull", left: int) -> None:
        """Come after a pull of the same connection, whose output has left up to `left`, below the end of its reply.

        Earlier ones are kept while theirs may be unsent, too.
        """
        self.earlier = each = before
        while each.earlier is not None:
            if each.earlier.reply_end <= left:
                each.earlier = None
                break
            each = each.earlier
