"""Promises and deliveries of a simulation: messages appended, delivered and acknowledged, timers, requests, replies."""

from collections import Counter

Place = tuple[str, int, int]
"""Topic, queue, offset: one message of one engine."""


class Ledger:
    """The ledger of one engine. `check()` fails with the first broken promise.

    Attributes:
        appended: messages whose APPEND was answered OK, by place.
        delivered: per group, the number of deliveries per message.
        done: per group, messages whose acknowledgement was answered OK.
        maybe_done: per group, messages whose acknowledgement was sent; it counts, too, when only its answer was lost.
        timers: id -> due time of delayed messages whose TIMER_ADD was answered OK.
        fired: id -> positions and times at which the message was stored.
        asked, replied: tokens of requests that were answered OK, and of replies that arrived.
    """

    def __init__(self) -> None:
        self.appended: dict[Place, bytes] = {}
        self.delivered: dict[str, Counter[Place]] = {}
        self.done: dict[str, set[Place]] = {}
        self.maybe_done: dict[str, set[Place]] = {}
        self.timers: dict[bytes, int] = {}
        self.fired: dict[bytes, dict[Place, int]] = {}
        self.asked: set[bytes] = set()
        self.replied: Counter[bytes] = Counter()
        self.bodies: dict[Place, bytes] = {}

    def deliver(self, group: str, place: Place, body: bytes) -> None:
        """Record a delivery to the group. Fails when the message's bytes have changed."""
        assert self.bodies.setdefault(place, body) == body, f"{place}: delivered with other bytes than before"
        self.delivered.setdefault(group, Counter())[place] += 1

    def fire(self, timer: bytes, place: Place, stored_at_ms: int) -> None:
        """Record the delivery of a delayed message."""
        self.fired.setdefault(timer, {})[place] = stored_at_ms

    def check(self, groups: dict[str, str], now_ms: int) -> None:
        """Compare promises and deliveries, after all deliveries have had time to arrive.

        Args:
            groups: group -> its topic.
        """
        for group, topic in groups.items():
            wanted = {place for place in self.appended if place[0] == topic}
            missing = wanted - set(self.delivered.get(group, ()))
            assert not missing, f"group={group}: {len(missing)} messages not delivered, as {min(missing)}"
            open_ = wanted - self.done.get(group, set()) - self.maybe_done.get(group, set())
            assert not open_, f"group={group}: {len(open_)} messages not acknowledged, as {min(open_)}"
        for place, body in self.appended.items():
            assert self.bodies.get(place, body) == body, f"{place}: not the bytes that were appended"
        for timer, due_ms in self.timers.items():
            if due_ms <= now_ms:
                stored = self.fired.get(timer, {})
                assert len(stored) == 1, f"timer={timer.hex()}: stored {len(stored)} times"
                assert min(stored.values()) >= due_ms, f"timer={timer.hex()}: fired early"
        unasked = set(self.fired) - set(self.timers)
        assert all(len(self.fired[timer]) == 1 for timer in unasked), (
            "a delayed message whose answer was lost fired twice"
        )
        assert self.asked <= set(self.replied), f"{len(self.asked - set(self.replied))} requests without a reply"
