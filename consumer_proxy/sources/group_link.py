"""A consumer proxy's connection to one broker group: link, breaker, and due answers."""

import time
from collections.abc import Callable
from typing import Any

from common.breaker import Breaker, State
from common.stalls import Stalls
from engine.client.dial import Admits, admit_all
from engine.client.router import DROP_S, BrokerGroup, Place, limited, link_to
from engine.client.rpc import LinkDown


class GroupLink(BrokerGroup):
    """A link whose breaker is told of late answers.

    An answer is *due* when the broker has no reason to wait: the request does not wait for messages, or was withdrawn.
    Only due answers can be late.

    Args:
        admits: asked about the group's engine, see RpcClient.
        on_change: called with this link when the breaker isolates it, refuses, or (True) readmits it.
    Attributes:
        on_due: called when an answer is due, and none was before.
    """

    def __init__(
        self, name: str, number: int, address: Place, cluster_key: bytes,
        on_change: "OnLinkChange", admits: Admits = admit_all,
    ) -> None:  # fmt: skip
        self._on_change = on_change
        self.on_due: Callable[[], object] = lambda: None
        self.due: dict[Any, float] = {}  # time since the answer is due, oldest first
        self._slowest_s: float | None = None
        rpc = link_to(
            address, cluster_key, role="consumer_proxy", on_hello=lambda hello: self.link_up(),
            on_down=lambda: self.link_down("the connection broke"), admits=admits,
        )  # fmt: skip
        super().__init__(name, number, address, rpc, Breaker(time.monotonic()))

    @property
    def isolated(self) -> bool:
        """Whether the group is avoided while other groups can be asked."""
        return self.breaker.state is State.OPEN

    @property
    def refusing(self) -> bool:
        """Whether the group is never asked."""
        return self.breaker.refusing

    def send(self, op: int, request: bytes, part: Any, on_answer: Callable[[int, bytes], None], waits: bool) -> int:
        """Ask; returns the request's id. Raises LinkDown."""
        request_id = self.rpc.send(op, request, on_answer)
        if not waits:
            self._note_due(part)
        return request_id

    def withdraw(self, request_id: int, part: Any) -> None:
        """End the request's waiting: it is answered with the messages it has."""
        self.rpc.cancel(request_id)
        if part not in self.due:
            self._note_due(part)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to tell the breaker, which is closed."""
        return not self.due and self._slowest_s is None and self.breaker.state is State.CLOSED

    def answered(self, part: Any) -> None:
        """Record that the answer to the part has arrived."""
        since_s = self.due.pop(part, None)
        if since_s is not None:
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - since_s)

    def tell(self, op: int, request: bytes) -> None:
        """Send a request whose answer is only logged. Acknowledgements that are lost expire with their leases."""
        try:
            self.rpc.send(op, request, self._log_refusal)
        except LinkDown:
            limited.info(
                "broker_group=%s: link down: messages that were given back return when their leases expire", self.name
            )

    def look(self, now_s: float, stalls: Stalls) -> None:
        """Report the latency of answers to the breaker; called every few milliseconds. `stalls`: of this process."""
        slowest_s, self._slowest_s = self._slowest_s, None
        if self.rpc.seeks_master:
            self.due = dict.fromkeys(self.due, now_s)  # what waits for the next master is not late
        due_s = next(iter(self.due.values()), None)
        owed_s = now_s - due_s - stalls.since(due_s) if due_s is not None else None
        self.observe(now_s, slowest_s, owed_s)
        if owed_s is not None and owed_s > DROP_S:
            self.rpc.reconnect("silent for too long")

    def _note_due(self, part: Any) -> None:
        if not self.due:
            self.on_due()
        self.due[part] = time.monotonic()

    def _follow_breaker(self, state_before: State, was_refusing: bool) -> None:
        super()._follow_breaker(state_before, was_refusing)
        was_isolated = state_before is State.OPEN
        if (self.isolated, self.refusing) != (was_isolated, was_refusing):
            self._on_change(self, was_isolated and not self.isolated)

    def _log_refusal(self, code: int, payload: bytes) -> None:
        if code:
            text = payload.decode("utf-8", "replace")
            limited.info("broker_group=%s: leases were not given back: code=%d: %s", self.name, code, text)


OnLinkChange = Callable[[GroupLink, bool], None]
