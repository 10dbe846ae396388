"""How the topics are named in which groups' dead letters lie, and what a dead letter says of itself.

They are ordinary topics that nobody defines and nobody sends to: who may pull as the group may pull them. An engine keeps what it buries
in a queue of its own: the first one that lives in its broker group.
"""

from collections.abc import Sequence
from hashlib import blake2b

from common.names import NAME_CHARS_MAX
from common.placement import Placement, topic_hash

PREFIX = "_dlq."
PREFIX_RULE = f"names that begin with {PREFIX} are reserved for dead letters: use another one"
QUEUES_MAX = 10_000
PROPERTY = "dead_letter_"
"""What the properties that a dead letter adds to its message's own begin with: group, cause, reason, attempts, first_ms, last_ms,
topic, queue, offset, id."""

REJECTED, ATTEMPTS = "rejected", "attempts"
CAUSES = (REJECTED, ATTEMPTS)

_DIGEST_CHARS = 32


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters. A group's name that leaves no room for the prefix ends in a digest of it."""
    if len(group) <= NAME_CHARS_MAX - len(PREFIX):
        return PREFIX + group
    digest = blake2b(group.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return PREFIX + group[: NAME_CHARS_MAX - len(PREFIX) - _DIGEST_CHARS] + digest


def queues_of(topic: str, broker_groups: Sequence[str]) -> int:
    """How many queues of a dead-letter topic there are to look at, so that each broker group's own is among them."""
    if len(broker_groups) < 2:
        return 1
    placement, hashed = Placement(broker_groups), topic_hash(topic.encode())
    own = [placement.nearest(home, hashed, 0, QUEUES_MAX) for home in range(len(broker_groups))]
    return 1 + max(queue for queue in own if queue is not None)


def group_of(topic: str) -> str:
    """Whose dead letters lie in the topic; of a group with a digest in its topic's name that is not to be known.

    A name that is not kept for dead letters comes back as it is.
    """
    return topic.removeprefix(PREFIX)


def is_dead_letter_topic(name: str) -> bool:
    """Whether the name is kept for dead letters."""
    return name.startswith(PREFIX)
