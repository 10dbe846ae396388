"""Metrics with a series per group or topic. The operator chooses how many, and a gauge tells how many are left out.

name | type, unit | what to do about it
penstock_engine_group_lag_messages{group} | messages; the groups with the largest lag | grows: consumers are too slow, gone, or paused
penstock_engine_groups | groups now | –
penstock_engine_groups_left_out | groups without a series | above 0: raise --metrics-groups
penstock_engine_topic_messages_total{topic} | messages stored, of the topics that --metrics-topics names | –
penstock_engine_topic_kept_messages{topic} | messages that retention keeps | –
penstock_engine_topics_left_out | topics that --metrics-topics names without a series | above 0: name fewer
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import nlargest
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.net.turns import next_turn
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import UnknownTopicError, UnreadableError
from engine.log import Log
from engine.node import Node
from engine.ops.admin_groups import lag_of

_PREFIX = "penstock_engine_"
LAG_CURSORS_MAX = 10_000
"""Maximum number of cursors that a scrape looks at: some 20 ms, or 80 ms where all are behind."""
SLICE_CURSORS = 250
"""Cursors in a row: the messages that arrive meanwhile wait for some 2 ms at most."""
GONE = (UnreadableError, UnknownTopicError)
"""The disk fails, or the topic has been deleted."""
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
    """A collector over the groups and topics of one engine.

    Args:
        node: returns the node that serves; None: there is none now.
    """

    def __init__(self, node: Callable[[], Node | None], bounds: SeriesBounds) -> None:
        self._serving, self._bounds = node, bounds

    def describe(self) -> list[Metric]:
        """No metrics: registering the collector reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        node = self._serving()
        if node is not None:
            yield from self._groups(node)
            if self._bounds.topics:
                yield from self._topics(node.store)

    def _groups(self, node: Node) -> Iterator[Metric]:
        lags = [*self._lags(node)]
        family = GaugeMetricFamily(
            _PREFIX + "group_lag_messages", "Messages that a group has not acknowledged.", labels=["group"]
        )
        chosen = nlargest(self._bounds.groups, lags)
        for lag, name in sorted(chosen, key=lambda each: each[1]):
            family.add_metric([name], lag)
        yield family
        count = len(node.delivery.groups)
        yield GaugeMetricFamily(_PREFIX + "groups", "Groups.", value=count)
        yield GaugeMetricFamily(
            _PREFIX + "groups_left_out", "Groups without a series of their lag.", value=count - len(chosen)
        )

    def _lags(self, node: Node) -> Iterator[tuple[int, str]]:
        """Lag and name of the groups whose queues can be read. In between, the engine serves its connections."""
        looked = looked_before = 0
        for name, group in list(node.delivery.groups.items()):
            places = [place for each in group.topics.values() for place in each]
            looked += len(places)
            if looked > LAG_CURSORS_MAX:
                return
            with suppress(*GONE):
                yield sum(_lag(node.store, place) for place in places), name
            if looked - looked_before >= SLICE_CURSORS:
                looked_before = looked
                next_turn()
                if self._serving() is not node:
                    return  # its log is closed

    def _topics(self, store: Log) -> Iterator[Metric]:
        stored = CounterMetricFamily(_PREFIX + "topic_messages", "Messages stored of a topic.", labels=["topic"])
        kept = GaugeMetricFamily(
            _PREFIX + "topic_kept_messages", "Messages of a topic that retention keeps.", labels=["topic"]
        )
        left_out, queues_left, shown = 0, TOPIC_QUEUES_MAX, set[str]()
        for pattern in self._bounds.topics:
            prefix = pattern.removesuffix("*")
            for topic in store.topics(prefix, "", TOPICS_MAX + 1):
                if topic.name in shown or (prefix == pattern and topic.name != pattern):
                    continue
                queues_left -= topic.queues
                bounds: list[tuple[int, int]] = []
                if len(shown) < TOPICS_MAX and queues_left >= 0:
                    with suppress(*GONE):
                        bounds = [store.bounds(topic.id, queue) for queue in range(topic.queues)]
                if not bounds:
                    left_out += 1
                    continue
                shown.add(topic.name)
                stored.add_metric([topic.name], sum(end for _, end in bounds))
                kept.add_metric([topic.name], sum(end - first for first, end in bounds))
        yield stored
        yield kept
        yield GaugeMetricFamily(
            _PREFIX + "topics_left_out", "Topics that were asked for and have no series, at least.", value=left_out
        )


def _lag(store: Log, place: QueueCursor) -> int:
    """The lag in one queue. The first offset costs most, and matters only to a group that is behind."""
    own = (place.topic_id, place.queue)
    end = store.end(*own)
    return lag_of(place, 0 if place.next_offset >= end else store.bounds(*own)[0], end)
