"""A slave's connection to its master: what `engine.broker.master_link` does with sockets and greenlets."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.limited_log import LimitedLog
from engine.broker.master_session import DIAL_S, PAUSE_S, PAUSE_S_MAX, FollowingBroker, MasterSession
from engine.client.dial import Hello
from engine.errors import LogError
from engine.link.errors import LinkError
from engine.link.proof import REPLICA_ROLE
from tests.sim.group.greeting import Greeting
from tests.sim.group.network import End, parsed

if TYPE_CHECKING:
    from tests.sim.group.process import Process

limited = LimitedLog(logging.getLogger("penstock.sim"))


class MasterLine:
    """Connects again and again until it is closed.

    Args:
        target: name of the master's process.
    """

    def __init__(self, process: "Process", broker: FollowingBroker, target: str, now_ms: Callable[[], int]) -> None:
        self._process, self._broker, self._target, self._now_ms = process, broker, target, now_ms
        self._is_closed = False
        self._pause_s = PAUSE_S
        self._end: End | None = None
        self._greeting: Greeting | None = None
        self._heard_ms = 0
        process.later(0, self._try)

    def close(self) -> None:
        """End it for good."""
        self._is_closed = True
        if self._greeting is not None:
            self._greeting.give_up()
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def _try(self) -> None:
        if not self._is_closed:
            self._session = MasterSession(self._broker, self._now_ms, self._tell)
            self._greeting = Greeting(
                self._process, self._target, REPLICA_ROLE, self._opened, self._lost, name=self._process.name
            )

    def _opened(self, end: End, hello: Hello) -> None:
        self._end, self._heard_ms = end, self._process.world.now_ms
        end.on_frame, end.on_closed = self._on_frame, self._lost
        try:
            end.send(self._session.begin())
        except (OSError, LinkError, LogError) as error:
            self._not_followed(error)
            return
        self._watch(end)

    def _not_followed(self, error: Exception) -> None:
        limited.warning("broker=%s: not followed: %s", self._process.name, error)
        self._lost()

    def _watch(self, end: End) -> None:
        """End a connection over which nothing comes."""
        silent_ms = self._process.world.now_ms - self._heard_ms
        if self._end is end and silent_ms >= 1000 * DIAL_S:
            self._lost()
        elif self._end is end:
            self._process.later(int(1000 * DIAL_S) - silent_ms, lambda: self._watch(end))

    def _on_frame(self, frame: bytes) -> None:
        end = self._end
        self._heard_ms = self._process.world.now_ms
        op, _, code, payload = parsed(frame)
        try:
            answer = self._session.take(op, code, payload)
        except (OSError, LinkError, LogError) as error:
            self._not_followed(error)
            return
        if answer and end is not None:
            end.send(answer)
        self._tell()
        if self._session.is_over:
            self._lost()

    def _tell(self) -> None:
        if self._end is not None:
            frame = self._session.tell()
            if frame:
                self._end.send(frame)

    def _lost(self) -> None:
        if self._session.follows:
            self._pause_s = PAUSE_S
        end, self._end = self._end, None
        if end is not None:
            end.close()
        self._session.end()
        self._process.later(int(1000 * self._pause_s), self._try)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
