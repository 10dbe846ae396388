"""The last replies with messages of each connection, by which an operator sees who got a message.

A reply is noted by the ranges that would give its messages back, which a pull has anyway: nothing is done per message.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from common.net.server import Server
from common.net.turns import next_turn
from common.placement import topic_hash
from engine.link.acknowledgement import AckRanges
from engine.link.pull import PullScope
from engine.link.receipt import TOKEN

REPLIES_KEPT = 8
"""Replies per open connection: the messages that a client works on nearly always came with its last ones."""

ENDED_KEPT = 1_000
"""Connections that have ended, the newest."""

STEP = 50
"""Connections that are looked at before others may run: some 0.5 ms at most, unless all have the message's topic."""


class SentReply(NamedTuple):
    """A reply with messages. `held`: encoded ranges that release them."""

    at_ms: int
    scope: PullScope
    held: bytes


Replies = tuple[SentReply, ...]
"""The newest first."""


class RecentDeliveries:
    """The replies of connections that have ended; those of open ones are kept by their pulls."""

    def __init__(self) -> None:
        self._ended: deque[tuple[str, Replies]] = deque(maxlen=ENDED_KEPT)

    def ended(self, peer: str, replies: Replies, unsent: Sequence[bytes]) -> None:
        """A connection has ended. `unsent`: ranges of its replies that did not leave, so that no client has them."""
        if seen := tuple(each for each in replies if each.held not in unsent):
            self._ended.append((peer, seen))

    def of_message(self, server: Server, topic: str, queue: int, offset: int) -> list[dict[str, Any]]:
        """The known deliveries of one message, the newest first. Other greenlets run meanwhile."""
        hashed = topic_hash(topic.encode())
        needle, found = hashed.to_bytes(8, "little"), []
        for looked_at, (peer, is_open, replies) in enumerate([*_open(server), *_closed(self._ended)], 1):
            if looked_at % STEP == 0:
                next_turn()
            for reply in replies:
                if needle in reply.held:
                    found += [
                        {"peer": peer, "open": is_open, "at_ms": reply.at_ms, "application": reply.scope.application,
                         "group": reply.scope.group.decode(errors="replace"), "lease": lease}
                        for lease in _leases(reply.held, hashed, queue, offset)
                    ]  # fmt: skip
        return sorted(found, key=lambda row: row["at_ms"], reverse=True)


def _open(server: Server) -> Iterator[tuple[str, bool, Replies]]:
    for connection in list(server.connections):
        if connection.context is not None:
            yield connection.peer, True, connection.context.replies


def _closed(ended: Iterable[tuple[str, Replies]]) -> Iterator[tuple[str, bool, Replies]]:
    for peer, replies in ended:
        yield peer, False, replies


def _leases(held: bytes, hashed: int, queue: int, offset: int) -> Iterator[int]:
    """Leases of the ranges that hold the message."""
    for each in AckRanges(held):
        of_queue, _, of_topic, base, lease = TOKEN.unpack_from(each.token)[1:]
        if (of_topic, of_queue) == (hashed, queue) and each.first <= offset - base < each.first + each.count:
            yield lease
