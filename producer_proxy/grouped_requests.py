"""Request-reply over all broker groups: a request waits at the group that holds its queue, and its token leads the reply there.

The token's instance number begins with three bytes of a hash of the group's name, so whichever proxy gets the reply knows the group.
"""

import os
from hashlib import blake2b
from typing import Any

from common.contract import Code, SendResult
from common.reply_token import TOKEN_SIZE, read_token
from engine.client.brokers import Broker, Brokers
from producer_proxy.requests import Replying, Requests
from producer_proxy.topics import binding_of

MARK_SIZE = 3


class GroupedRequests:
    """One Requests a broker group, made when it is first needed; see there for the methods."""

    def __init__(self, brokers: Brokers, now_ms) -> None:
        self._brokers, self._now_ms = brokers, now_ms
        self._made: dict[str, tuple[Broker, Requests]] = {}
        self._turn = 0

    @property
    def waiting(self) -> int:
        return sum(requests.waiting for _, requests in self._made.values())

    @property
    def asked(self) -> int:
        return sum(requests.asked for _, requests in self._made.values())

    @property
    def replies(self) -> int:
        return sum(requests.replies for _, requests in self._made.values())

    @property
    def late(self) -> int:
        return sum(requests.late for _, requests in self._made.values())

    def ask(self, connection: Any, call, destination, durability: int) -> SendResult:
        """Store the call's message where it belongs and block this greenlet until its reply has come or cannot come any more."""
        (message,) = call.messages
        self._turn += 1
        place = self._brokers.place(destination, binding_of(message, destination), self._turn)
        if place is None:
            error = "the broker cannot be reached; nothing was stored"
            return SendResult(code=Code.UNAVAILABLE, id=message.id, retry_after_ms=200, error=error)
        broker, topic_id, queue = place
        return self._of(broker).ask(connection, call, topic_id, queue, durability)

    def reply(self, message) -> Replying:
        """Pass a reply on; its result comes from what is returned. The message has no fault."""
        token = read_token(message.reply_to) if len(message.reply_to) == TOKEN_SIZE else None
        mark = b"" if token is None else token.instance.to_bytes(8, "little")[:MARK_SIZE]
        found = [broker for broker in self._brokers.listed if _mark(broker.name) == mark]
        if not (found := found or self._brokers.listed):
            return Replying(SendResult(code=Code.UNAVAILABLE, id=message.id, retry_after_ms=200))
        return self._of(found[0]).reply(message)

    def release(self) -> None:
        for _, requests in self._made.values():
            requests.release()

    def _of(self, broker: Broker) -> Requests:
        made = self._made.get(broker.name)
        if made is None or made[0] is not broker:
            mark = _mark(broker.name)
            requests = Requests(
                broker.rpc, self._brokers.cluster_key, self._now_ms, lambda size: mark + os.urandom(size - MARK_SIZE)
            )
            made = self._made[broker.name] = broker, requests
        return made[1]


def _mark(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=MARK_SIZE).digest()
