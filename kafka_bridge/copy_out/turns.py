"""The producers of all copies to one Kafka cluster: a few, which the copies take in turns.

A copy has a transactional id of its own, which fences its earlier copiers and no other copy, so it needs a producer of its
own while it copies; and a producer has threads and connections. Which copies have something to copy is asked of the engine,
by one thread for all of them.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from common.kafka.base import KafkaDriver
from common.limited_log import LimitedLog
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_out.copier import OutCopier, TurnClients

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
PRODUCERS_MAX = 24
"""Copies of one cluster that copy at the same time, each with a thread and a producer. With more that have messages, one
waits for its turn."""
IDLE_S = 5.0
"""A thread without a copy for so long ends, with its administration client."""
LOOK_S = 1.0
"""Interval at which the engine is asked for messages of the copies that have no turn."""


class Looks(Protocol):
    """An EngineLooks."""

    def moved(self, copiers: Sequence[OutCopier]) -> list[OutCopier]: ...
    def close(self) -> None: ...


class CopyTurns:
    """Threads begin with the first copy, and end with the last one.

    Args:
        follow: reads the cluster's files.
        looks: makes what asks the engine; owned by the thread that asks.
    """

    def __init__(
        self, name: str, driver: KafkaDriver, follow: Callable[[], FollowedConnection], looks: Callable[[], Looks]
    ) -> None:
        self._name, self._driver, self._follow, self._make_looks = name, driver, follow, looks
        self._changed = threading.Condition()
        self._copiers: list[OutCopier] = []
        self._waiting: deque[OutCopier] = deque()
        self._working: set[OutCopier] = set()
        self._workers = self._idle_workers = 0
        self._is_looking = self._has_more = False

    @property
    def is_empty(self) -> bool:
        """Whether there are no copies."""
        return not self._copiers

    def add(self, copier: OutCopier) -> None:
        """Copy this from now on, until it is stopped."""
        copier.on_stop = self._wake
        with self._changed:
            self._copiers.append(copier)
            self._has_more = True
            if not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._look, name=f"copies to {self._name}", daemon=True).start()
            self._changed.notify_all()

    # --- The thread that asks the engine.

    def _look(self) -> None:
        looks = self._make_looks()
        with closing(looks):
            while (quiet := self._quiet()) is not None:
                try:
                    self._offer(looks.moved(quiet) if quiet else [])
                except Exception:
                    limited.exception("kafka=%s: internal error while the engine was asked for messages", self._name)
                with self._changed:
                    self._changed.wait_for(self._has_news, LOOK_S)
                    self._has_more = False

    def _has_news(self) -> bool:
        """Whether a copy has come, or one without a turn is to end."""
        return self._has_more or any(each.is_stopping and each not in self._working for each in self._copiers)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _quiet(self) -> list[OutCopier] | None:
        """The copies without a turn, whose next one may come; None: there are no copies any more.

        Those that are to end do so here, unless they have a turn.
        """
        now_s = time.monotonic()
        with self._changed:
            for each in [each for each in self._copiers if each.is_stopping and each not in self._working]:
                self._copiers.remove(each)
                if each in self._waiting:
                    self._waiting.remove(each)
                each.ended.set()
            busy = self._working | {*self._waiting}
            if not self._copiers:
                self._is_looking = False
                return None
            return [each for each in self._copiers if each not in busy and now_s >= each.due_s]

    def _offer(self, copiers: Sequence[OutCopier]) -> None:
        with self._changed:
            self._waiting += copiers
            for each in copiers:
                each.wait_for_turn()
            for _ in range(min(len(self._waiting) - self._idle_workers, PRODUCERS_MAX - self._workers)):
                self._workers += 1
                threading.Thread(target=self._work, name=f"copy to {self._name}", daemon=True).start()
            self._changed.notify_all()

    # --- The threads that have a producer.

    def _work(self) -> None:
        with closing(TurnClients(self._driver, self._follow)) as clients:
            while (copier := self._next()) is not None:
                try:
                    copier.take_turn(clients, self._is_awaited)
                except Exception:
                    limited.exception("kafka=%s: internal error while clients were closed", self._name)
                with self._changed:
                    self._working.discard(copier)
                    self._changed.notify_all()

    def _next(self) -> OutCopier | None:
        """The copy whose turn it is; None: there was none for a while, so this thread ends."""
        with self._changed:
            self._idle_workers += 1
            self._changed.wait_for(lambda: bool(self._waiting), IDLE_S)
            self._idle_workers -= 1
            if not self._waiting:
                self._workers -= 1
                return None
            copier = self._waiting.popleft()
            self._working.add(copier)
            return copier

    def _is_awaited(self) -> bool:
        """Whether a copy waits for a turn that only the end of another one can give it."""
        return len(self._waiting) > self._idle_workers and self._workers >= PRODUCERS_MAX
