"""Clients that leave: what their last replies carried is given back as far as it was not sent."""

from collections.abc import Callable
from functools import partial
from typing import Any

from consumer_proxy.pull.open_pull import OpenPull
from consumer_proxy.pull.recent_deliveries import RecentDeliveries
from consumer_proxy.sources.base import Source
from consumer_proxy.stats import Stats
from engine.link.acknowledgement import NO_ACKS, AckRanges


class LeavingClients:
    """Follows each connection's end."""

    def __init__(self, source: Source, stats: Stats, deliveries: RecentDeliveries) -> None:
        self._source, self._stats, self._deliveries = source, stats, deliveries

    def watch(self, connection: Any, pull: OpenPull) -> None:
        """Follow the connection's end. Set once per connection: from the first call on its context is an OpenPull."""
        if connection.context is None:
            connection.on_close = partial(self._closed, connection.on_close)
        else:
            pull.replies = connection.context.replies
            if connection.context.reply_end > (left := connection.left):
                pull.follow(connection.context, left)
        connection.context = pull

    def release(self, pull: OpenPull) -> None:
        """Give back what the pull's reply carried: it was not sent as a whole, so no client has seen it."""
        held, pull.held = AckRanges(pull.held), NO_ACKS.encoded
        if held != NO_ACKS and pull.scope is not None:
            self._stats.given_back += sum(each.count for each in held)
            self._source.acknowledge(pull.scope, held)

    def _closed(self, before: Callable[[Any], None] | None, connection: Any) -> None:
        pull = connection.context
        if pull.connection is not None:
            pull.connection = None
            self._stats.abandoned += 1
            if pull.handle is not None:
                self._source.cancel(pull.handle)
        each = pull if connection.unsent else None
        unsent = []
        while each is not None:
            if each.reply_end > connection.left:
                unsent.append(each.held)
                self.release(each)
            each = each.earlier
        self._deliveries.ended(connection.peer, pull.replies, unsent)
        if before is not None:
            before(connection)
