"""One broker group as this proxy asks it: the link, the breaker, and what is owed by now."""

import logging
import time
from collections.abc import Callable
from typing import Any

from common.breaker import Breaker, State
from engine.client.rpc import LinkDown, RpcClient
from engine.link.layout import LEASE

log = logging.getLogger("penstock.consumer")
DROP_S = 10.0  # silence after which the link is taken for dead: a machine without power resets nothing

Address = tuple[str, int]


class GroupLink:
    """An answer is *due* when nothing keeps the broker from giving it: the request does not wait, or was withdrawn.

    Only those can be late.

    Args:
        on_change: called with this link when it was isolated, refuses, or (True) is back.
    """

    def __init__(
        self, name: str, address: Address, cluster_key: bytes,
        on_change: Callable[["GroupLink", bool], None],
    ) -> None:  # fmt: skip
        self.name, self.address = name, address
        self._on_change = on_change
        self.breaker = Breaker(time.monotonic())
        self.due: dict[Any, float] = {}  # in the order of the moments
        self._slowest_s: float | None = None
        self._rpc = RpcClient(
            address, cluster_key, role="consumer_proxy", on_hello=lambda hello: self._linked(), on_down=self._unlinked
        )

    @property
    def isolated(self) -> bool:
        """Not to be asked while there are others."""
        return self.breaker.state is State.OPEN

    @property
    def refusing(self) -> bool:
        """Not to be asked at all."""
        return self.breaker.refusing

    def send(self, op: int, request: bytes, part: Any, answer: Callable[[int, bytes], None], waits: bool) -> int:
        """Ask; returns the request's id. Raises LinkDown."""
        request_id = self._rpc.send(op, request, answer)
        if not waits:
            self.due[part] = time.monotonic()
        return request_id

    def withdraw(self, request_id: int, part: Any) -> None:
        """The request is to be answered with what it has."""
        self._rpc.cancel(request_id)
        self.due.setdefault(part, time.monotonic())

    def settled(self, part: Any) -> None:
        """The part's answer has come."""
        since_s = self.due.pop(part, None)
        if since_s is not None:
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - since_s)

    def tell(self, op: int, request: bytes) -> None:
        """Ask for what nobody waits for. What is lost comes back by its lease."""
        try:
            self._rpc.send(op, request, self._heard)
        except LinkDown:
            log.info("broker_group=%s: away; what was given back returns by its lease", self.name)

    def ask_lender(self, request: bytes, answer: Callable[[int, bytes], None]) -> bool:
        """Ask for slices of cluster-wide limits; False when it cannot be asked."""
        try:
            self._rpc.send(LEASE, request, answer)
        except LinkDown:
            return False
        return True

    def look(self, now_s: float) -> None:
        """Every few milliseconds."""
        slowest_s, self._slowest_s = self._slowest_s, None
        owed_s = now_s - next(iter(self.due.values())) if self.due else None
        before = self._verdict
        self.breaker.look(now_s, slowest_s, owed_s)
        self._tell_change(before)
        if owed_s is not None and owed_s > DROP_S:
            self._rpc.reconnect("silent for too long")

    def close(self) -> None:
        self._rpc.close()

    def _linked(self) -> None:
        before = self._verdict
        self.breaker.link_up(time.monotonic())
        self._tell_change(before)

    def _unlinked(self) -> None:
        before = self._verdict
        self.breaker.link_down(time.monotonic(), "the connection broke")
        self._tell_change(before)

    @property
    def _verdict(self) -> tuple[bool, bool]:
        return self.isolated, self.refusing

    def _tell_change(self, before: tuple[bool, bool]) -> None:
        if self._verdict == before:
            return
        if self.isolated and not before[0]:
            log.warning("broker_group=%s: breaker opened: %s", self.name, self.breaker.reason)
        elif not self.isolated:
            log.info("broker_group=%s: breaker %s", self.name, self.breaker.state.value)
        self._on_change(self, before[0] and not self.isolated)

    def _heard(self, code: int, payload: bytes) -> None:
        if code:
            text = payload.decode("utf-8", "replace")
            log.info("broker_group=%s: did not take back a lease, code=%d: %s", self.name, code, text)
