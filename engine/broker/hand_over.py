"""A planned switch, as the master that is replaced does it. Design: docs/design/0031-switch-over.md.

It stops working for clients, until all members of the set have all that it has on their disks, and waits for the record
that names another master. Its log is equal to that of the next master then, so it can follow with the log as it is. When
the record does not come in time, it leads on.
"""

import logging
from collections.abc import Callable
from functools import partial

from engine.broker.host import BrokerHost
from engine.broker.life import BrokerLife
from engine.broker.standby import Standby
from engine.errors import EngineError
from engine.node import Node

log = logging.getLogger("penstock.engine")

HAND_OVER_MS = 500
"""Longest time without a master for clients. Proxies keep their sends for longer (SEEK_S)."""
SENTENCE = "this broker hands over to another one of its group"

MARK_TRIES = 3
"""Confirmations to wait for until the delayed messages that have fired can be marked. Without all marks the log is read
again before it follows."""

Answer = Callable[[str], None]


class HandOver:
    """From `begin()` until the broker adopts a record, or `cancel()`.

    Args:
        node: of the life.
        standby: greets clients from the moment on in which nothing more is appended.
        answer: called once: with "" when the record can be changed now, else with the reason why not.
    Attributes:
        is_over: it was cancelled.
    """

    def __init__(
        self, life: BrokerLife, node: Node, host: BrokerHost, standby: Standby, ship: Callable[[], None], answer: Answer
    ) -> None:  # fmt: skip
        self._life, self._node, self._host, self._standby = life, node, host, standby
        self._ship, self._answer = ship, answer
        self._until_ms = host.env.clock.monotonic_ms() + HAND_OVER_MS
        self._is_answered = self.is_over = self._is_drained = False

    def begin(self) -> None:
        """Stop the node's own work first: a delayed message is marked as sent once its message is durable."""
        self._host.stop_node()
        self._mark(MARK_TRIES)

    @property
    def is_late(self) -> bool:
        """Whether the next record has not come in time."""
        return self._host.env.clock.monotonic_ms() >= self._until_ms

    def can_follow(self) -> bool:
        """Whether the broker can follow the next master with its log as it is, once another record is adopted."""
        return self._is_drained and self._node.timers.are_marked and not self._life.store.damage

    def cancel(self, reason: str) -> None:
        """Lead on, if this broker is the master still."""
        if self.is_over:
            return
        self.is_over = True
        self._life.store.refusal.hand_over("")
        if not self._life.store.refusal.following:
            log.warning("epoch=%d: leads on: %s", self._life.group.epoch, reason)
            self._node.turn_away("")
            self._host.serve(self._node)
        self._tell(reason)

    def _mark(self, tries: int) -> None:
        """Mark delayed messages until all are; clients are served meanwhile. Then append nothing any more."""
        if not self._settles():
            return
        if tries and not self._node.timers.are_marked:
            self._when_everywhere(partial(self._mark, tries - 1))
            return
        self._life.store.appender.flush()
        self._life.store.refusal.hand_over(SENTENCE)
        self._node.turn_away(SENTENCE)
        self._host.turn_away(self._standby)
        self._when_everywhere(self._drained)

    def _drained(self) -> None:
        """All answers have left, and all members have everything."""
        self._is_drained = True
        store = self._life.store
        log.info("epoch=%d position=%d: handed over", self._life.group.epoch, store.end_position)
        self._host.end_clients()
        self._tell("")

    def _settles(self) -> bool:
        """Write what only the memory has: progress, and marks of delayed messages. Returns False when this is over."""
        node = self._node
        try:
            node.timers.close()
            node.delivery.write_progress(now_ms=node.clock.monotonic_ms())
        except (EngineError, OSError) as error:
            self.cancel(f"what has to be stored before cannot be: {error}")
        return not self.is_over

    def _when_everywhere(self, call: Callable[[], None]) -> None:
        def reached() -> None:
            if not self.is_over:
                call()

        self._life.when_everywhere(reached)
        self._ship()

    def _tell(self, reason: str) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._answer(reason)


class HandOvers:
    """The one that is under way, if any.

    Args:
        ship: sends what members lack, and notes what is confirmed.
    """

    def __init__(self, host: BrokerHost, standby: Standby, ship: Callable[[], None]) -> None:
        self._host, self._standby, self._ship = host, standby, ship
        self._present: HandOver | None = None

    def begin(self, life: BrokerLife | None, version: int, answer: Answer) -> None:
        """Prepare for the record that follows this version; answers "" once that can be written, or why not."""
        if life is None or life.node is None or not life.group.is_replicated:
            answer("it does not lead a group with others in sync")
        elif version != life.group.version:
            answer(f"it has adopted version {life.group.version} of the record: try again")
        elif self._present is not None and not self._present.is_over:
            answer("it hands over already")
        else:
            self._present = HandOver(life, life.node, self._host, self._standby, self._ship, answer)
            self._present.begin()

    def tick(self) -> None:
        """Lead on when the next record has not come in time."""
        if self._present is not None and self._present.is_late:
            self.end("the record of another master did not come in time")

    def can_follow(self) -> bool:
        """Whether the broker can follow the next master with its log as it is."""
        return self._present is not None and self._present.can_follow()

    def end(self, reason: str) -> None:
        """End it; this broker leads on if it is the master still."""
        present, self._present = self._present, None
        if present is not None:
            present.cancel(reason)
