# cython: annotation_typing=False
"""Reply window: how many bytes of messages the other end of a link can take.

The other end says up to which position it takes answers with messages, as QUIC's MAX_DATA does. Positions count all
bytes of such answers on the link, so both ends agree without an answer being named, and a lost message cannot happen.
"""

from collections import OrderedDict
from typing import Any

NO_LIMIT = 1 << 62
SMALL_BYTES = 64 << 10
"""Size of an answer for which room is kept free of large ones. More lets less wait; RESERVE must hold many of them."""
RESERVE_BYTES = 4 << 20
"""Room that only small answers use."""
CONTENDED_BYTES = 1 << 20
"""Maximum of a large answer while other pulls of the link wait for room: answers behind it wait for all of it."""
SHARE = 8
"""A large answer takes at most this part of the room, so that some is left for the next one, however many there are."""


class ReplyWindow:
    """The window of one link.

    Attributes:
        limit: position up to which the other end takes answers. Links whose other end sets none have no limit.
        sent: position of the next answer.
        is_full: the connection has much unsent output; only small answers are added to it.
        waiting: pulls that wait for room, longest first. A later pull must not take the room of an earlier one, unless
            its answer is small.
    """

    __slots__ = ("is_full", "limit", "sent", "waiting")

    def __init__(self) -> None:
        self.limit, self.sent = NO_LIMIT, 0
        self.is_full = False
        self.waiting: OrderedDict[Any, None] = OrderedDict()

    def raise_to(self, limit: int) -> None:
        """Take the other end's limit. It never falls: what was allowed once may be on its way."""
        self.limit = limit if self.limit == NO_LIMIT else max(self.limit, limit)

    def share(self) -> int:
        """Maximum bytes of an answer that does not wait for room: never nothing, so the room may be exceeded a bit."""
        return max(SMALL_BYTES, (self.limit - self.sent) // SHARE)

    def allowance(self, is_first: bool) -> tuple[int, int]:
        """Return the maximum bytes of the next answer, and those of its first message, which may be more.

        Args:
            is_first: no other pull has waited longer for room.
        """
        room = self.limit - self.sent
        if room <= 0:
            return 0, 0
        small = min(SMALL_BYTES, room)
        if self.is_full or not is_first or room <= RESERVE_BYTES + SMALL_BYTES:
            return small, small
        size = self.share()
        if len(self.waiting) > 1:
            size = min(size, CONTENDED_BYTES)
        return size, room - RESERVE_BYTES
