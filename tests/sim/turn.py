"""APPEND frames of one loop turn, staged as they arrive and written once: what `engine/server/_serve.pyx` does in C."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.link import layout
from engine.node import Node
from engine.ops.append import COUNT_RULE, HEAD_RULE

if TYPE_CHECKING:
    from tests.sim.link import Link


log = logging.getLogger("penstock.sim")


class StagedAppend:
    """One APPEND between its arrival and its answer."""

    def __init__(self, link: "Link", request_id: int, durable: bool, end_position: Callable[[], int]) -> None:
        self.link, self.request_id, self.durable, self._end_position = link, request_id, durable, end_position
        self.results = b""

    def answer(self) -> None:
        """Send the results and the log's end."""
        end = layout.APPEND_END.pack(self._end_position())
        self.link.send_frame(layout.APPEND, self.request_id, layout.OK, [self.results, end])


class Turn:
    """The frames of one turn. Everything but APPEND waits for the end of the turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._staged: list[StagedAppend] = []
        self._requests: deque[tuple[Link, int, int, bytes]] = deque()
        self._unsynced: dict[Link, int] = {}
        self._is_due = False

    def take(self, link: "Link", op: int, request_id: int, payload: bytes) -> bool:
        """Take a frame; returns whether the end of the turn has to be scheduled."""
        if op == layout.APPEND:
            self._stage(link, request_id, payload)
        else:
            self._requests.append((link, op, request_id, payload))
        due, self._is_due = not self._is_due, True
        return due

    def _stage(self, link: "Link", request_id: int, payload: bytes) -> None:
        node = self._node
        if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
            return link.send_frame(layout.APPEND, request_id, layout.INVALID, [HEAD_RULE.encode()])
        durability, count = layout.APPEND_HEAD.unpack_from(payload)
        batches = payload[layout.APPEND_HEAD.size :]
        if count == 0 or count * layout.BATCH_HEADER_SIZE > len(batches):
            return link.send_frame(layout.APPEND, request_id, layout.INVALID, [COUNT_RULE.encode()])
        is_durable = node.stored.waits(durability) or self._unsynced.get(link, 0) > 0
        staged = StagedAppend(link, request_id, is_durable, lambda: node.store.end_position)
        if staged.durable:
            self._unsynced[link] = self._unsynced.get(link, 0) + 1
        self._staged.append(staged)
        try:
            staged.results = node.store.appender.append_results(batches, count, node.clock.wall_ms(), staged=True)
        except EngineError as error:
            self._refuse_all(error)
        except Exception:
            link.close("internal error")  # as the reactor does
            raise
        return None

    def _refuse_all(self, error: EngineError) -> None:
        staged, self._staged = self._staged, []
        for each in staged:
            self._synced(each)
            each.link.send_frame(layout.APPEND, each.request_id, error.code, [str(error).encode()])

    def end(self) -> None:
        """Write, answer, then serve the other requests."""
        self._is_due = False
        node = self._node
        try:
            node.store.appender.commit_staged()
        except EngineError as error:
            self._refuse_all(error)
        staged, self._staged = self._staged, []
        durable = [each for each in staged if each.durable]
        if durable:
            node.stored.when(node.store.end_position, lambda: self._answer_synced(durable), False)
        if staged:
            try:
                node.turn_end()
            except Exception:
                log.exception("waking pulls failed")  # the producers are still answered
        for each in staged:
            if not each.durable:
                each.answer()
        while self._requests:
            link, op, request_id, payload = self._requests.popleft()
            if not link.closed:
                node.on_request(link, op, request_id, payload)
        node.turn_end()

    def _answer_synced(self, durable: list[StagedAppend]) -> None:
        for each in durable:
            self._synced(each)
            each.answer()

    def _synced(self, each: StagedAppend) -> None:
        if each.durable:
            self._unsynced[each.link] -= 1
            if not self._unsynced[each.link]:
                del self._unsynced[each.link]
