"""Requests and replies over all broker groups. A request waits at the group that holds its queue; its token routes the
reply to that group.

The token's instance number begins with three bytes of a hash of the group's name, so every proxy that gets the reply
knows the group.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from common.clock import Clock
from common.contract import Code
from common.reply_token import INSTANCE_AT, reply_key
from common.resting_timer import RestingTimer
from common.twins import use_native
from engine.client.brokers import Broker, Brokers
from producer_proxy.requests.requests import OpenRequest, RequestAsker

NATIVE = use_native("producer_proxy.requests", "_requests")
if NATIVE and not TYPE_CHECKING:
    from producer_proxy.requests._requests import OpenRequests
else:
    from producer_proxy.requests.requests import OpenRequests

MARK_SIZE = 3
TICK_S = 0.01


class GroupedRequests:
    """One OpenRequests per broker group, made at its first use; OpenRequests documents the methods."""

    def __init__(self, brokers: Brokers, clock: Clock) -> None:
        self._brokers, self._clock = brokers, clock
        self._made: dict[str, tuple[Broker, OpenRequests]] = {}
        self._tick = RestingTimer(TICK_S, self._on_tick)

    @property
    def waiting(self) -> int:
        return sum(requests.waiting for _, requests in self._made.values())

    @property
    def is_idle(self) -> bool:
        return all(requests.is_idle for _, requests in self._made.values())

    @property
    def asked(self) -> int:
        return sum(requests.asked for _, requests in self._made.values())

    @property
    def replies(self) -> int:
        return sum(requests.replies for _, requests in self._made.values())

    @property
    def late(self) -> int:
        return sum(requests.late for _, requests in self._made.values())

    def follow(self) -> None:
        """Move open requests to the new links of groups whose address has changed."""
        for broker in self._brokers.listed:
            if broker.name in self._made:
                self._of(broker)

    def open(self, asker: RequestAsker, group: int, wait_ms: int) -> OpenRequest | None:
        """Register a request before its append at the broker group of this number; None: too many are open."""
        return self._of(self._brokers.numbered(group)).open(asker, wait_ms)

    def reply_key(self, application: str) -> bytes:
        """The key of the application's reply tokens."""
        return reply_key(self._brokers.cluster_key, application)

    def pass_on(
        self, data: bytes, key: bytes, reply: bytes, told: Callable[[int], None], timeout_ms: int
    ) -> int | None:
        """Send a reply to the waiting client's proxy: the code, or None when `told(code)` will be called with it."""
        found = self._brokers.only
        if found is None:
            listed, mark = self._brokers.listed, data[INSTANCE_AT : INSTANCE_AT + MARK_SIZE]
            if not listed:
                return Code.UNAVAILABLE
            found = next((broker for broker in listed if _mark(broker.name) == mark), listed[0])
        return self._of(found).pass_on(data, key, reply, told, timeout_ms)

    def release(self) -> None:
        for _, requests in self._made.values():
            requests.release()

    def close(self) -> None:
        """Stop the timer."""
        self._tick.close()

    def _of(self, broker: Broker) -> OpenRequests:
        made = self._made.get(broker.name)
        if made is not None and made[0] is not broker:
            # The group has another address: a new object here would forget the open requests and their deadlines.
            made[1].move_to(broker.rpc)
            made = self._made[broker.name] = broker, made[1]
        if made is None:
            mark = _mark(broker.name)
            requests = OpenRequests(
                broker.rpc,
                self._brokers.cluster_key,
                self._clock,
                self._tick.wake,
                lambda size: mark + os.urandom(size - MARK_SIZE),
            )
            made = self._made[broker.name] = broker, requests
        return made[1]

    def _on_tick(self) -> None:
        waits = False
        for _, requests in self._made.values():
            waits = requests.on_time() or waits
        if not waits:
            self._tick.rest()


@lru_cache(maxsize=256)
def _mark(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=MARK_SIZE).digest()
