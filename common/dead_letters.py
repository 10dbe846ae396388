"""Dead-letter topics: their names, and the properties that a dead letter adds to its message.

They are ordinary topics without a definition, and clients cannot send to them. An application needs a grant of its own
to pull them, which names their group. An engine keeps its dead letters in one queue: the first one that its broker
group holds.
"""

from collections.abc import Sequence
from hashlib import blake2b

from common.names import NAME_CHARS_MAX
from common.placement import Placement, topic_hash

PREFIX = "_dlq."
PREFIX_RULE = f"names that begin with {PREFIX} are reserved for dead letters: use another one"
QUEUES_MAX = 10_000
PROPERTY = "dead_letter_"
"""Prefix of the properties that a dead letter adds to those of its message: group, cause, reason, attempts, first_ms,
last_ms, topic, queue, offset, id."""

REJECTED, ATTEMPTS = "rejected", "attempts"
CAUSES = (REJECTED, ATTEMPTS)

_DIGEST_CHARS = 32
GROUP_PREFIX_CHARS_MAX = NAME_CHARS_MAX - len(PREFIX) - _DIGEST_CHARS
"""Maximum size of a prefix of groups in a grant. Names of topics hold this much of any group's name."""


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters.

    A name too long for the prefix is cut and ends in a digest of the group's name.
    """
    if len(group) <= NAME_CHARS_MAX - len(PREFIX):
        return PREFIX + group
    digest = blake2b(group.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return PREFIX + group[:GROUP_PREFIX_CHARS_MAX] + digest


def dead_letter_pattern(groups: str) -> str:
    """The pattern of the dead-letter topics of the groups that match a grant's pattern."""
    return PREFIX + groups if groups.endswith("*") else dead_letter_topic(groups)


def queues_of(topic: str, broker_groups: Sequence[str]) -> int:
    """The number of queues of a dead-letter topic to read, so that the queue of each broker group is among them."""
    if len(broker_groups) < 2:
        return 1
    placement, hashed = Placement(broker_groups), topic_hash(topic.encode())
    own = [placement.nearest(home, hashed, 0, QUEUES_MAX) for home in range(len(broker_groups))]
    return 1 + max(queue for queue in own if queue is not None)


def group_of(topic: str) -> str:
    """The group of a dead-letter topic. It cannot be told from a name that ends in a digest.

    A name that is not reserved for dead letters is returned as it is.
    """
    return topic.removeprefix(PREFIX)


def is_dead_letter_topic(name: str) -> bool:
    """Whether the name is reserved for dead letters."""
    return name.startswith(PREFIX)
