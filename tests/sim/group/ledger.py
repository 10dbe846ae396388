"""Messages that the clients of a group sent and got, their answers, and the rules for what the log has to keep.

Promises by their names in the list of reliability: S2 no invention, S3 one value per offset, S4 and S7 readers meet no
hole and never go back, S5 order in real time, S6 order per key, S9 no doubles. They are checked at the event, or at the
end against the log of the last master.
"""

import re
from typing import NamedTuple

from engine.link import layout
from tests.sim.sent import Broken

Place = tuple[str, int, int]
"""Topic, queue, offset."""
NAME = re.compile(rb"\|([\w.-]+)\|([\w.-]+#\d+)\|")
"""Topic and name of a message, in its body."""
PROGRESS_MS = 4_000
"""An acknowledgement that was answered this long before any end or change of a master is never forgotten."""
HELD_MS = 2_000
"""Longest time for which an answer was held, or was on its way: a master may have been replaced meanwhile."""


class Class(NamedTuple):
    """A durability class and the topic that is used with it."""

    topic: str
    durability: int


CLASSES = (
    Class("memory", layout.MEMORY),
    Class("fsync", layout.FSYNC),
    Class("replicated", layout.REPLICATED),
    Class("everywhere", layout.REPLICATED_FSYNC),
)
TIMERS = "timers"
QUEUES = 2


class SentMessage:
    """One message.

    Attributes:
        order: number per key and topic, in the order of sending.
        state: open, kept, refused, or unknown: the answer says that it may be stored.
        asked_ms, answered_ms: of its send.
        due_ms: of a delayed message.
    """

    __slots__ = ("answered_ms", "asked_ms", "due_ms", "key", "name", "order", "place", "state", "topic")

    def __init__(self, topic: str, name: str, key: bytes, order: int, asked_ms: int) -> None:
        self.topic, self.name, self.key, self.order, self.asked_ms = topic, name, key, order, asked_ms
        self.state, self.place, self.answered_ms, self.due_ms = "open", None, 0, 0
        self.place: Place | None = None


class Faulted:
    """Faults of the machines, by which losses are judged.

    Attributes:
        cut: names of the machines whose power was cut. ends_ms: times at which a process ended or a master changed.
    """

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self.ends_ms: list[int] = []

    def keeps(self, topic: str) -> bool:
        """Whether an acknowledged message of this class outlives what has happened. Table: 0030."""
        if topic == "memory":
            return not self.cut
        return len(self.cut) < 2 if topic == "replicated" else True

    def ended_between(self, from_ms: int, to_ms: int) -> bool:
        """Whether some process ended, or the master changed, in this time."""
        return any(from_ms <= each <= to_ms for each in self.ends_ms)


class Ledger:
    """
    Attributes:
        sent: by name. delivered: places by name, of the group's deliveries.
        read: places that readers by position have seen, by name.
    """

    def __init__(self, faulted: Faulted) -> None:
        self.faulted = faulted
        self.sent: dict[str, SentMessage] = {}
        self.names: dict[Place, str] = {}
        self.delivered: dict[str, Place] = {}
        self.read: dict[str, Place] = {}
        self.done_ms: dict[Place, int] = {}
        self.deliveries = 0
        self.open = 0

    # -- sends

    def send(self, topic: str, name: str, key: bytes, order: int, now_ms: int) -> SentMessage:
        """A client sends a message."""
        sent = self.sent[name] = SentMessage(topic, name, key, order, now_ms)
        self.open += 1
        return sent

    def answered(self, sent: SentMessage, code: int, place: Place | None, now_ms: int) -> None:
        """Its answer has come."""
        if sent.state != "open":
            raise Broken(f"{sent.name}: was answered twice")
        self.open -= 1
        sent.answered_ms = now_ms
        if code == layout.OK:
            sent.state, sent.place = "kept", place
            if place is not None:
                self._bind(place, sent.name)
        else:
            sent.state = "unknown" if code // 100 == 3 else "refused"

    # -- reads

    def delivers(self, place: Place, message: bytes, attempt: int, queued_ms: int) -> None:
        """The group gets a message, in an answer that was made at `queued_ms`."""
        sent = self._seen(place, message)
        self.deliveries += 1
        done_ms = self.done_ms.get(place)
        is_again = done_ms is not None and queued_ms > done_ms
        if is_again and not self.faulted.ended_between(done_ms - HELD_MS, done_ms + PROGRESS_MS):
            after_ms = queued_ms - done_ms
            raise Broken(f"{sent.name}: delivered again as attempt {attempt}, {after_ms} ms after it was acknowledged")
        self.delivered[sent.name] = place

    def reads(self, place: Place, message: bytes) -> None:
        """A reader by position gets a message."""
        self.read[self._seen(place, message).name] = place

    def done(self, place: Place, now_ms: int) -> None:
        """The acknowledgement of a delivered message was answered."""
        self.done_ms[place] = now_ms

    def _seen(self, place: Place, message: bytes) -> SentMessage:
        sent = self.of(place, message)
        if sent.state == "refused":
            raise Broken(f"{sent.name}: its answer says that it is not stored, and a reader gets it at {place}")
        self._bind(place, sent.name)
        return sent

    def of(self, place: Place, message: bytes) -> SentMessage:
        """The message at a place."""
        found = NAME.search(message)
        sent = self.sent.get(found[2].decode()) if found else None
        if sent is None or found is None or sent.topic != found[1].decode() or sent.topic != place[0]:
            raise Broken(f"{place}: a message that was not sent there: {message[:80]!r}")
        return sent

    def _bind(self, place: Place, name: str) -> None:
        known = self.names.setdefault(place, name)
        if known == name:
            return
        if self.faulted.keeps(place[0]) and self.faulted.keeps("memory"):
            raise Broken(f"{place}: has two messages, {known} and {name}")
        self.names[place] = name  # a power cut has taken the first one, as its class allows

    # -- the end

    def check(self, log: dict[Place, bytes]) -> None:
        """Compare with the log of the last master. `log`: its messages."""
        places: dict[str, list[Place]] = {}
        for place, message in log.items():
            places.setdefault(self.of(place, message).name, []).append(place)
        for sent in self.sent.values():
            self._check_sent(sent, places.get(sent.name, []))
        if self.faulted.keeps("memory"):
            self._check_seen(places)
        self._check_order(places)

    def _check_sent(self, sent: SentMessage, places: list[Place]) -> None:
        if len(places) > 1:
            raise Broken(f"{sent.name} ({sent.state}): is in the log {len(places)} times: {places}")
        if sent.state == "refused" and places:
            raise Broken(f"{sent.name}: its answer says that it is not stored, and it is at {places[0]}")
        if sent.state != "kept" or not self.faulted.keeps(sent.topic):
            return
        if not places:
            raise Broken(f"{sent.name}: was acknowledged {sent.answered_ms} at {sent.place}, and the log lacks it")
        if sent.place is not None and places != [sent.place]:
            raise Broken(f"{sent.name}: was acknowledged at {sent.place}, and is at {places[0]}")

    def _check_seen(self, places: dict[str, list[Place]]) -> None:
        for kind, seen in (("delivered", self.delivered), ("read", self.read)):
            for name, place in seen.items():
                if places.get(name) != [place]:
                    raise Broken(f"{name}: was {kind} at {place}, and the log has it at {places.get(name)}")

    def _check_order(self, places: dict[str, list[Place]]) -> None:
        by_queue: dict[tuple[str, int], list[tuple[int, SentMessage]]] = {}
        for name, (place, *_) in places.items():
            by_queue.setdefault(place[:2], []).append((place[2], self.sent[name]))
        for found in by_queue.values():
            found.sort(key=lambda each: each[0])
            orders: dict[bytes, SentMessage] = {}
            latest: SentMessage | None = None  # of those before, the one that was sent last
            for _, sent in found:
                before = orders.get(sent.key)
                if sent.key and before is not None and before.order > sent.order:
                    raise Broken(f"{sent.name}: is behind {before.name}, which was sent after it with the same key")
                orders[sent.key] = sent
                if sent.due_ms:
                    continue
                if latest is not None and sent.state == "kept" and sent.answered_ms < latest.asked_ms:
                    raise Broken(f"{sent.name}: was acknowledged before {latest.name} was sent, and is behind it")
                if latest is None or sent.asked_ms > latest.asked_ms:
                    latest = sent
