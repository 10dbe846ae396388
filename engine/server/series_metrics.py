"""Metrics with a series per group or topic. The operator chooses how many, and a gauge tells how many are left out.

name | type, unit | what to do about it
penstock_engine_group_lag_messages{group} | messages; the groups with the largest lag | grows: consumers are too slow, gone, or paused
penstock_engine_groups | groups now | –
penstock_engine_groups_left_out | groups without a series | above 0: raise --metrics-groups
penstock_engine_topic_messages_total{topic} | messages stored, of the topics that --metrics-topics names | –
penstock_engine_topic_kept_messages{topic} | messages that retention keeps | –
penstock_engine_topics_left_out | topics that --metrics-topics names without a series | above 0: name fewer
"""

from collections.abc import Iterator
from heapq import nlargest
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.node import Node
from engine.ops.admin_groups import lag_of

_PREFIX = "penstock_engine_"
LAG_CURSORS_MAX = 10_000
"""Maximum number of cursors that a scrape looks at: a few milliseconds."""
TOPICS_MAX = 1_000
TOPIC_QUEUES_MAX = 10_000


class SeriesBounds(NamedTuple):
    """What an operator wants to see.

    Attributes:
        groups: maximum number of groups with a series.
        topics: names, or prefixes followed by `*`.
    """

    groups: int = 100
    topics: tuple[str, ...] = ()


class SeriesMetrics:
    """A collector over the groups and topics of one engine."""

    def __init__(self, node: Node, bounds: SeriesBounds) -> None:
        self._node, self._bounds = node, bounds

    def describe(self) -> list[Metric]:
        """No metrics: registering the collector reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._groups()
        if self._bounds.topics:
            yield from self._topics()

    def _groups(self) -> Iterator[Metric]:
        lags = [*self._lags()]
        family = GaugeMetricFamily(
            _PREFIX + "group_lag_messages", "Messages that a group has not acknowledged.", labels=["group"]
        )
        chosen = nlargest(self._bounds.groups, lags)
        for lag, name in sorted(chosen, key=lambda each: each[1]):
            family.add_metric([name], lag)
        yield family
        count = len(self._node.delivery.groups)
        yield GaugeMetricFamily(_PREFIX + "groups", "Groups.", value=count)
        yield GaugeMetricFamily(
            _PREFIX + "groups_left_out", "Groups without a series of their lag.", value=count - len(chosen)
        )

    def _lags(self) -> Iterator[tuple[int, str]]:
        store, cursors_left = self._node.store, LAG_CURSORS_MAX
        for name, group in self._node.delivery.groups.items():
            places = [place for each in group.topics.values() for place in each]
            cursors_left -= len(places)
            if cursors_left < 0:
                return
            yield sum(lag_of(place, *store.bounds(place.topic_id, place.queue)) for place in places), name

    def _topics(self) -> Iterator[Metric]:
        stored = CounterMetricFamily(_PREFIX + "topic_messages", "Messages stored of a topic.", labels=["topic"])
        kept = GaugeMetricFamily(
            _PREFIX + "topic_kept_messages", "Messages of a topic that retention keeps.", labels=["topic"]
        )
        store, left_out, queues_left, shown = self._node.store, 0, TOPIC_QUEUES_MAX, set[str]()
        for pattern in self._bounds.topics:
            prefix = pattern.removesuffix("*")
            for topic in store.topics(prefix, "", TOPICS_MAX + 1):
                if topic.name in shown or (prefix == pattern and topic.name != pattern):
                    continue
                queues_left -= topic.queues
                if len(shown) == TOPICS_MAX or queues_left < 0:
                    left_out += 1
                    continue
                shown.add(topic.name)
                bounds = [store.bounds(topic.id, queue) for queue in range(topic.queues)]
                stored.add_metric([topic.name], sum(end for _, end in bounds))
                kept.add_metric([topic.name], sum(end - first for first, end in bounds))
        yield stored
        yield kept
        yield GaugeMetricFamily(
            _PREFIX + "topics_left_out", "Topics that were asked for and have no series, at least.", value=left_out
        )
