"""Groups that read a plan's topics in Kafka although the plan does not name them: found by asking Kafka itself.

A group reads a topic when it has a position there, or a member has a partition of it. Of some groups with members Kafka, or
the client, does not tell the partitions: of those that rebalance, of the newer protocol and of share groups by
kafka-python. They may read any topic. Kafka does not tell when a position was committed; it forgets those of a group
without members after `offsets.retention.minutes`, 7 days by default.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from common.kafka.group_admin import GroupAdmin
from kafka_bridge.copy_out.positions import position_group

GROUPS_MAX = 10_000
"""So many groups of a cluster are asked, in the order of their names."""
WITHOUT_MEMBERS = ("empty", "dead", "")
"""States of groups, in lower case."""
REHEARSALS = "penstock-rehearsal-"
"""Begins the names of all that a rehearsal makes."""
OWN_PREFIXES = (position_group(""), REHEARSALS)


class UnnamedGroup(NamedTuple):
    """Attributes: topics: of the plan, which it reads; empty: not known."""

    name: str
    state: str
    topics: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What it does, in Kafka's words for its state."""
        what = "has positions, and no members now" if self.state.lower() in WITHOUT_MEMBERS else f"is {self.state}"
        reads = f"reads {', '.join(self.topics)}" if self.topics else "has members, and may read any topic"
        return f"group {self.name} {reads} in Kafka ({what})"


class UnnamedGroups(NamedTuple):
    """Attributes: unasked: number of groups beyond GROUPS_MAX."""

    groups: tuple[UnnamedGroup, ...] = ()
    unasked: int = 0


def unnamed_groups(kafka: GroupAdmin, topics: Mapping[str, int], named: Collection[str]) -> UnnamedGroups:
    """Raises KafkaFault. A group that the user may not see is not found.

    Args:
        topics: their numbers of partitions.
        named: groups of the plan.
    """
    states = {name: state for name, state in kafka.groups().items() if name not in named}
    names = sorted(name for name in states if not name.startswith(OWN_PREFIXES))
    asked = names[:GROUPS_MAX]
    reads = {name: {each.topic for each in found} for name, found in kafka.committed_on(asked, topics).items()}
    at_work = [name for name in asked if states[name].lower() not in WITHOUT_MEMBERS and name not in reads]
    subscribed = {name: found for name, found in kafka.subscribed(at_work).items() if found}
    reads |= {name: found & {*topics} for name, found in subscribed.items()}
    unknown = {*at_work} - {*subscribed}
    found = tuple(
        UnnamedGroup(name, states[name], tuple(sorted(reads.get(name, ()))))
        for name in sorted({*reads, *unknown})
        if reads.get(name) or name in unknown
    )
    return UnnamedGroups(found, len(names) - len(asked))
