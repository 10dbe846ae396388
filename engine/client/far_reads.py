"""Slaves that are asked for reads far behind the end of the log. Design: docs/design/0033-reads-by-slaves.md."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from engine.client.dial import Hello
from engine.link.codes import OK
from engine.link.errors import PayloadError
from engine.link.read import ReadAnswer

LATE_S = 2.0
"""Time in which a slave has to answer."""
REST_S = 10.0
"""Time for which a slave that was late is not asked."""


class SlaveLink(Protocol):
    """A link to a broker that may be a slave."""

    hello: Hello | None

    @property
    def connected(self) -> bool: ...


Link = TypeVar("Link", bound=SlaveLink)


class FarReads(Generic[Link]):
    """Chooses among the links to a group's brokers, in turn.

    Args:
        now_s: the monotonic clock.
    """

    def __init__(self, links: Sequence[Link], now_s: Callable[[], float] = time.monotonic) -> None:
        self._links, self._now_s = list(links), now_s
        self._rests: dict[int, float] = {}  # number of a link -> when it may be asked again
        self._last = 0

    def has_slave(self, master: Hello | None) -> bool:
        """Whether there is a link to a slave with the log of this master."""
        return self._next(master) is not None

    def next_slave(self, master: Hello | None) -> Link | None:
        """The next link to a slave with the log of this master; None: there is none."""
        number = self._next(master)
        if number is None:
            return None
        self._last = number
        return self._links[number]

    def was_late(self, link: Link) -> None:
        """The slave has not answered within LATE_S."""
        self._rests[self._links.index(link)] = self._now_s() + REST_S

    def _next(self, master: Hello | None) -> int | None:
        count = len(self._links)
        for number in ((self._last + step) % count for step in range(1, count + 1)):
            link = self._links[number]
            if link.connected and is_slave_of(link.hello, master) and self._rests.get(number, 0.0) <= self._now_s():
                return number
        return None


def is_slave_of(hello: Hello | None, master: Hello | None) -> bool:
    """Whether a broker has greeted as a slave with a copy of the master's log."""
    return hello is not None and master is not None and not hello.leads and hello.log_id == master.log_id


def is_complete(code: int, payload: bytes) -> bool:
    """Whether an answer to a READ has no refusal, of the whole or of a position."""
    try:
        return code == OK and all(report.code == OK for report in ReadAnswer.decode(payload).reports)
    except PayloadError:
        return False
