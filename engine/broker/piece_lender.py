"""Bytes of this master's log that in-sync slaves lend for its cold reads. Design: docs/design/0033-reads-by-slaves.md."""

import logging
import time
from collections.abc import Callable

from common.address import engine_address
from common.limited_log import LimitedLog
from engine.broker.host import RepairPeer
from engine.client.dial import Keys
from engine.client.peer_pieces import PeerPieces
from engine.link.errors import LinkError
from engine.replication.frames import Fetch

limited = LimitedLog(logging.getLogger("penstock.engine"))

LATE_S = 1.0
"""Time in which a slave has to answer."""
SLOW_S = 0.5
"""Time above which the own disk would have been faster: the slave's answer is taken, and it rests."""
REST_S = 10.0
"""Time for which a slave that was slow, late or lost, or has refused, is not asked."""


class PieceLender:
    """The slaves of one broker, for one open log; see `engine.log.read.borrowed.Lender`.

    Args:
        name: of this broker.
        slaves: returns the in-sync slaves that follow in this moment, with the position below which they have the same,
            confirmed bytes; none if this broker does not lead. Called in every thread.
        now_s: the monotonic clock.
    """

    def __init__(
        self, name: str, key: Keys, slaves: Callable[[], list[RepairPeer]], far_bytes: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.far_bytes = far_bytes
        self._name, self._key, self._slaves, self._now_s = name, key, slaves, now_s
        self._rests: dict[str, float] = {}  # name of a slave -> when it may be asked again
        self._link: PeerPieces | None = None
        self._linked: tuple[str, str] | None = None
        self._is_stopped = False

    @property
    def is_ready(self) -> bool:
        """Whether there is a slave to ask."""
        return any(map(self._may_ask, self._slaves()))

    def lend(self, base: int, address: int, size: int) -> bytes:
        """See `Lender.lend`. One link is kept, to the slave that was asked last."""
        for slave in self._slaves():
            if slave.limit < base + address + size or not self._may_ask(slave):
                continue
            began_s = self._now_s()
            try:
                # The slave refuses another epoch than its own: it may have been cut, or lead itself.
                found = self._ask(slave, Fetch(base, address, size, slave.epoch).encode())
                if self._now_s() - began_s > SLOW_S:
                    self._rests[slave.name] = self._now_s() + REST_S
                return found
            except (OSError, LinkError) as error:
                self._hang_up()
                self._rests[slave.name] = self._now_s() + REST_S
                if not self._is_stopped:
                    limited.warning(
                        "position=%d: slave %s does not lend bytes for cold reads, and is not asked for %d s: %s",
                        base + address, slave.name, REST_S, error,
                    )  # fmt: skip
        return b""

    def stop(self) -> None:
        """See `Lender.stop`."""
        self._is_stopped = True
        link = self._link
        if link is not None:
            link.shut_down()

    def _may_ask(self, slave: RepairPeer) -> bool:
        return not self._is_stopped and self._rests.get(slave.name, 0.0) <= self._now_s()

    def _ask(self, slave: RepairPeer, question: bytes) -> bytes:
        if self._linked != (slave.name, slave.address):
            self._hang_up()
        if self._link is not None:
            try:
                return self._link.ask(question)
            except TimeoutError:
                raise
            except OSError:
                if self._is_stopped:
                    raise
                self._hang_up()  # it was closed since it was used
        link = PeerPieces(engine_address(slave.address), self._key, self._name, LATE_S)
        self._link, self._linked = link, (slave.name, slave.address)
        return link.ask(question)

    def _hang_up(self) -> None:
        link, self._link, self._linked = self._link, None, None
        if link is not None:
            link.close()
