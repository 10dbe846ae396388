"""A change of a topic's broker groups before it is made: the queues that it adds, those that take no more messages, and
what stands against it.
"""

from collections import Counter
from typing import NamedTuple

from common.config.definitions import TopicDefinition
from common.config.view import ConfigView
from common.placement import NONE_PLACED, Placement, topic_hash
from console.installation.broker_queries import BrokerQueries
from console.installation.queue_states import lags_of_topic, queue_states

QUEUES_ASKED_MAX = 1_000


class GroupShare(NamedTuple):
    """The queues and messages of a topic in one broker group.

    Attributes:
        takes: its queues that take new messages, now or after the change.
        reads: its queues that are only read.
        messages: in all its queues; None: they were not counted.
    """

    broker_group: str
    takes: int
    reads: int
    messages: int | None


class TopicMove(NamedTuple):
    """
    Attributes:
        old, new: the topic's definition before and after.
        shares: of each broker group after the change.
        backlogs: groups with order by key and their messages to acknowledge, whose order would break.
        faults: sentences about engines that do not answer.
    """

    old: TopicDefinition
    new: TopicDefinition
    shares: list[GroupShare]
    backlogs: list[tuple[str, int]]
    faults: list[str]

    @property
    def added(self) -> int:
        """Queues that the change adds."""
        return self.new.queues - self.old.queues


def shares_of(names: list[str], topic: TopicDefinition, messages: Counter[str] | None = None) -> list[GroupShare]:
    """The share of each of these broker groups."""
    hashed = topic_hash(topic.name.encode())
    placement = Placement(names, {hashed: topic.ranges} if topic.ranges else NONE_PLACED)
    homes = [names[home] for home in placement.homes(hashed, topic.queues)]
    takes, reads = Counter(homes[topic.first_queue :]), Counter(homes[: topic.first_queue])
    return [GroupShare(name, takes[name], reads[name], None if messages is None else messages[name]) for name in names]


def previewed(queries: BrokerQueries, view: ConfigView, old: TopicDefinition, groups: list[str]) -> TopicMove:
    """The change as it would be made. Raises InvalidDefinition."""
    new = TopicDefinition.from_value(old.name, old.complete({**old.to_value(), "broker_groups": groups}))
    with queries.open() as opened:
        states, faults = queue_states(queries, opened, old.name, min(old.queues, QUEUES_ASKED_MAX))
        lags, _ = lags_of_topic(queries, opened, old.name)
    counted: Counter[str] = Counter()
    for state in states:
        counted[state.broker_group] += state.messages
    messages = None if faults or old.queues > QUEUES_ASKED_MAX else counted
    ordered = [each for each in lags if each.lag and (group := view.group(each.group)) and group.order == "key"]
    backlogs = [(each.group, each.lag or 0) for each in ordered]
    return TopicMove(old, new, shares_of(list(queries.places()), new, messages), backlogs, faults)
