"""Records of sent messages and of deliveries per group, which simulations check; the error of a broken promise."""

import re
from typing import NamedTuple

Place = tuple[str, int, int]
"""Topic, queue, offset."""

NAME = re.compile(rb"\|([\w.-]+)\|([\w.-]+#\d+)\|")
"""Topic and name of a message, in its body."""


class Broken(AssertionError):
    """A promise was broken."""


class Sent:
    """One message that a client has sent.

    Attributes:
        name: unique in the run.
        order: number per sender, in the order of sending.
        state: open: no answer yet, or none ever; kept: stored by its answer; refused: not stored by its answer.
        durable: its answer promises that it outlives a power cut.
        once: whether at most one copy may ever be stored.
        due_ms: of a delayed message, else 0.
        cancelled: of a delayed message, as `state`: "", open, kept, refused.
        sent_ms: time of the world at which it was sent first.
        withdrawn: of a request: the process that told its outcome, and when the asker knew it. No group gets it after that.
    """

    __slots__ = (
        "cancelled", "due_ms", "durable", "key", "message", "name", "once", "order", "place", "sent_ms", "state", "tag",
        "topic", "withdrawn",
    )  # fmt: skip

    def __init__(self, topic: str, name: str, order: int, message: bytes, key: bytes, tag: str) -> None:
        self.topic, self.name, self.order, self.message, self.key, self.tag = topic, name, order, message, key, tag
        self.state, self.durable, self.once, self.due_ms, self.cancelled = "open", False, True, 0, ""
        self.place: Place | None = None
        self.sent_ms = 0
        self.withdrawn = -1, 0


class GroupRules(NamedTuple):
    """The rules of a group: its topics, filter, order and attempts.

    Attributes:
        tags: of its filter; empty: everything.
        order: none or key.
        attempts_max: deliveries of a message, after which it is a dead letter.
    """

    name: str
    topics: tuple[str, ...]
    tags: tuple[str, ...] = ()
    order: str = "none"
    attempts_max: int = 16
    paused: bool = False


class LastLease(NamedTuple):
    """The latest delivery of a message to a group. `stamp`: of the process and of the group's resets, as it was sent."""

    consumer: str
    until_ms: int
    stamp: tuple[int, int]


class GroupHistory:
    """Deliveries to one group and its verdicts.

    Attributes:
        frames: per place, how often it was on the way to a client.
        settled: names whose DONE or REJECT was sent; it counts, too, when only its answer was lost.
        done: places whose DONE was answered OK, with the stamp at that time.
        rejected: names whose REJECT was sent.
        resets: how often an operator has begun to reset it.
        passed_over: places that it cannot get, as the engine has reported.
    """

    def __init__(self, rules: GroupRules) -> None:
        self.rules = rules
        self.frames: dict[Place, int] = {}
        self.settled: set[str] = set()
        self.done: dict[Place, tuple[int, int]] = {}
        self.leases: dict[Place, LastLease] = {}
        self.rejected: set[str] = set()
        self.delivered: set[str] = set()
        self.resets = 0
        self.reset_in: int | None = None
        self.passed_over: set[Place] = set()
