"""The connections of a proxy, for operators: listed and closed when somebody asks.

Nothing is counted for it while messages pass: each answer is made from what server and connections have anyway.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from common.net.server import Accepted, Server
from common.net.turns import next_turn

LISTED_MAX = 1_000
TOPICS_SHOWN = 10
STEP = 200
"""Connections that are looked at before others may run: some 0.3 ms."""


class ConnectionUse(NamedTuple):
    """The use of a connection, as far as its proxy knows it.

    Attributes:
        application: of the last call; empty: no call was accepted yet.
        group: as which it pulled last. topics: of that pull.
        is_waiting: a pull waits for messages.
    """

    application: str = ""
    group: str = ""
    topics: tuple[str, ...] = ()
    is_waiting: bool = False


class ConnectionFilter(NamedTuple):
    """Which connections are wanted; empty texts want all."""

    id: str = ""
    application: str = ""
    group: str = ""
    topic: str = ""

    def admits(self, use: ConnectionUse, reaches: Callable[[ConnectionUse, str], bool]) -> bool:
        """Whether a connection of this use is wanted, whatever its id."""
        return (
            self.application in ("", use.application)
            and self.group in ("", use.group)
            and (not self.topic or reaches(use, self.topic))
        )


class OpenCalls:
    """Calls in progress at one moment, until each is answered and its answer has left. Later calls do not count."""

    def __init__(self, server: Server) -> None:
        self._open = {
            each: (each.busy, each.queued)
            for each in server.connections
            if not each.closed and (each.busy or each.queued > each.left)
        }

    def unfinished(self) -> tuple[int, int]:
        """(calls without an answer, calls whose answer is not wholly sent)"""
        self._open = {each: was for each, was in self._open.items() if not self._is_over(each, *was)}
        calls = sum(was_busy and each.queued == queued for each, (was_busy, queued) in self._open.items())
        return calls, len(self._open) - calls

    @staticmethod
    def _is_over(connection: Any, was_busy: bool, queued: int) -> bool:
        # Without a call, the answers of before end at `queued`. Else another one follows: it ends where all has left.
        has_left = connection.queued == connection.left > queued if was_busy else connection.left >= queued
        return connection.closed or has_left


class ConnectionList:
    """
    Args:
        start: text that tells this process from those before it, so that an id names one connection ever.
        use_of: what a connection is used for.
        reaches: whether a connection of this use sends to a topic, or reads it.
    """

    def __init__(
        self, server: Server, start: str, use_of: Callable[[Any], ConnectionUse],
        reaches: Callable[[ConnectionUse, str], bool],
    ) -> None:  # fmt: skip
        self._server, self._start, self._use_of, self._reaches = server, start, use_of, reaches

    def listed(self, wanted: ConnectionFilter, limit: int) -> dict[str, Any]:
        """The longest open ones that are wanted, at most `limit`, and their number in all. Other greenlets run meanwhile."""
        rows: list[dict[str, Any]] = []
        total = 0
        for looked_at, (connection, accepted) in enumerate(list(self._server.connections.items()), 1):
            if looked_at % STEP == 0:
                next_turn()
            if connection.closed or (wanted.id and wanted.id != self._id(accepted)):
                continue
            use = self._use_of(connection)
            if wanted.admits(use, self._reaches):
                total += 1
                if len(rows) < limit:
                    rows.append(self._row(connection, accepted, use))
        return {"connections": rows, "total": total, "open": len(self._server.connections)}

    def close(self, id: str) -> dict[str, Any] | None:
        """Close a connection at once; its row as it was. None: there is no such connection (any more).

        A call in progress gets no answer, as when a network breaks: its client repeats it, and leases expire.
        """
        for connection, accepted in list(self._server.connections.items()):
            if id == self._id(accepted) and not connection.closed:
                row = self._row(connection, accepted, self._use_of(connection))
                connection.close("closed by an operator")
                return row
        return None

    def _id(self, accepted: Accepted) -> str:
        return f"{self._start}-{accepted.number}"

    def _row(self, connection: Any, accepted: Accepted, use: ConnectionUse) -> dict[str, Any]:
        return {
            "id": self._id(accepted), "peer": connection.peer, "tls": connection.tls is not None,
            "since_ms": accepted.at_ms, "answered_bytes": connection.queued, "application": use.application,
            "group": use.group, "topics": use.topics[:TOPICS_SHOWN], "topic_count": len(use.topics),
            "is_waiting": use.is_waiting,
        }  # fmt: skip


def filter_of(query: Mapping[str, str]) -> ConnectionFilter:
    """The filter of a query's fields."""
    return ConnectionFilter(**{name: query.get(name, "") for name in ConnectionFilter._fields})
