"""The messages of a topic that a comparison judges, as offsets of both sides, taken once at its beginning.

A record of Kafka below the position of its copy has to be in the engine, and a message of the engine's own below the
position of the copy back has to be in Kafka. What comes later is not judged, so both sides may grow meanwhile. What
retention has deleted on one side is left out on both.

Of a topic that proxies write to both sides everything is judged. No offset of one side tells what the other has, so
messages on their way, or at a bound of time, seem to be missing at first: see `BoundsFinder.widened`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from common.config.definitions import TopicDefinition
from common.config.text_values import ENGINE_HOME
from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.records import Partition
from common.names import stored_name
from engine.client.copied import engine_offset_of, source_offset_at
from engine.link.copy import QueueSource, SourceState
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import CopiedPositions
from migration.errors import PlanRefused
from migration.facts import TopicFacts
from migration.positions import CopiedTopic, EngineLink, EnginePositions
from migration.reconcile.engine_side import QueueReport, queue_reports, stored_at
from migration.reconcile.kafka_side import first_time
from migration.reconcile.rows import OFFSET_MAX, QueueScope
from migration.reconcile.spans import ReadRange, TimeSpan
from migration.tails import EnginePlace


class TopicBounds(NamedTuple):
    """
    Attributes:
        stored: the topic's name in the engine's log.
        scopes, kafka, engine: by queue.
        starts: first offsets of the engine's queues.
        is_dual: proxies write the topic to both sides.
    """

    topic: CopiedTopic
    stored: str
    scopes: dict[int, QueueScope]
    kafka: dict[int, ReadRange]
    engine: dict[int, ReadRange]
    starts: dict[int, int]
    is_dual: bool = False


DUAL_MARGIN_MS = 60_000
"""Of a dual write, what is not so much younger than the oldest message of one side is not judged, where retention has
deleted there: the two copies of a message have different times."""


class BoundsFinder:
    """Finds the bounds of topics. Blocks; raises KafkaFault, AdminError, OSError, and PlanRefused with a sentence.

    Args:
        open_reader: opens a reader of committed records.
        back: the plan's copies back to Kafka.
    """

    def __init__(
        self, kafka: ClusterAdmin, engine: EnginePositions, open_reader: Callable[[], PartitionReader],
        back: CopiedPositions, span: TimeSpan,
    ) -> None:  # fmt: skip
        self._kafka, self._engine, self._open_reader = kafka, engine, open_reader
        self._back, self._committed, self._span = back, back.committed(), span  # before the ends, as all positions
        self._rows: dict[str, list[SourceState]] = {}
        self._topics: dict[str, KafkaTopic] = {}
        self._offsets: dict[tuple[Partition, int], int | None] = {}

    def look_ahead(self, definitions: Sequence[TopicDefinition]) -> None:
        """Ask for what `of` needs of all these topics, in some four questions in place of six per topic."""
        topics = [CopiedTopic(each.name, each.made_ms, each.queues) for each in definitions]
        self._rows = self._engine.copied(topics)  # before the ends: what is judged lies below them
        self._topics = self._kafka.topics([each.name for each in topics])
        partitions = [
            Partition(each.name, queue)
            for each in topics
            if each.name in self._topics
            for queue in range(min(each.queues, self._topics[each.name].partitions))
        ]
        times = (EARLIEST, STABLE_END, self._span.from_ms, self._span.to_ms)
        self._offsets = {
            (partition, at): offset
            for at in times
            if at is not None
            for partition, offset in self._kafka.offsets(partitions, at).items()
        }

    def of(self, definition: TopicDefinition, has_copy_back: bool) -> TopicBounds:
        """The bounds of one topic, which has the same name on both sides."""
        topic = CopiedTopic(definition.name, definition.made_ms, definition.queues)
        stored = stored_name(topic.name, topic.made_ms)
        if topic.name not in self._rows:
            self.look_ahead([definition])
        rows, found = self._rows[topic.name], self._topics.get(topic.name)
        if found is None:
            raise PlanRefused(f"kafka topic {topic.name}: it does not exist (any more)")
        if found.partitions != topic.queues:
            shape = TopicFacts(queues=topic.queues, partitions=found.partitions).shape
            raise PlanRefused(f"topic {topic.name}: {shape}")
        for queue in range(topic.queues):
            if queue >= len(rows) or not (rows[queue].number or definition.secondary):
                raise PlanRefused(
                    f"topic {topic.name} queue {queue}: its copy has not begun: is a Kafka bridge running?"
                )
        places = self._engine.places(topic, rows)
        back = self._copied_back(definition, found, places) if has_copy_back else None
        bounds = TopicBounds(topic, stored, {}, {}, {}, {}, bool(definition.secondary))
        for home in self._engine.homes(topic):
            reports = queue_reports(home.link, stored, home.queues)
            for queue in home.queues:
                partition = Partition(topic.name, queue)
                bounds.starts[queue] = reports[queue].first
                own_end = self._own_end(definition, queue, back)
                one = _QueueBounds(home.link, stored, partition, rows[queue], reports[queue])
                scope = QueueScope(
                    found.id.bytes, queue, *places[partition], 0, rows[queue].next, 0, own_end, one.copied_first
                )
                bounds.scopes[queue], bounds.kafka[queue], bounds.engine[queue] = (
                    self._dual_queue(one, scope)
                    if bounds.is_dual
                    else self._queue(one, scope, definition.cut is not None)
                )
        return bounds

    def widened(self, bounds: TopicBounds, queue: int) -> TopicBounds:
        """Bounds with all that both sides have of a queue now, to look for what seems to be missing."""
        partition = Partition(bounds.topic.name, queue)
        now = {at: self._kafka.offsets([partition], at)[partition] or 0 for at in (EARLIEST, STABLE_END)}
        kafka = ReadRange(now[EARLIEST], now[STABLE_END])
        home = next(each for each in self._engine.homes(bounds.topic) if queue in each.queues)
        report = queue_reports(home.link, bounds.stored, [queue])[queue]
        scope = bounds.scopes[queue]._replace(source_first=0, source_end=OFFSET_MAX, own_first=0, own_end=OFFSET_MAX)
        engine = ReadRange(report.first, report.end)
        return bounds._replace(scopes={queue: scope}, kafka={queue: kafka}, engine={queue: engine})

    def _copied_back(
        self, definition: TopicDefinition, kafka: KafkaTopic, places: Mapping[Partition, EnginePlace]
    ) -> dict[int, int]:
        """Next engine offset per queue; a queue of which nothing was copied is left out."""
        engine = {each.number: EngineTopic(*place) for each, place in places.items()}
        return self._back.of(kafka, engine, self._committed, definition.cut)

    def _own_end(self, definition: TopicDefinition, queue: int, back: Mapping[int, int] | None) -> int:
        """Up to where messages of the engine's own have to be in Kafka.

        Before a cut, and after a rollback, that is everything: the engine gets no messages of its own, and what it has of a
        source that is no more came after them.
        """
        if definition.home != ENGINE_HOME:
            return OFFSET_MAX
        first = definition.cut.engine_first(queue) if definition.cut is not None else 0
        return first if back is None else back.get(queue, first)

    def _queue(self, one: "_QueueBounds", scope: QueueScope, is_cut: bool) -> tuple[QueueScope, ReadRange, ReadRange]:
        partition, since_ms = one.partition, self._span.from_ms
        earliest, end = self._asked(partition, EARLIEST, 0), self._asked(partition, STABLE_END, 0)
        first = earliest if since_ms is None else max(earliest, self._asked(partition, since_ms, end))
        scope = scope._replace(source_first=one.source_first(first), own_first=one.report.first)
        if since_ms is None and is_cut and earliest > 0:  # retention may have deleted copies of own messages
            with closing(self._open_reader()) as reader:
                since_ms = first_time(reader, partition, earliest, end)
        if since_ms is not None:
            own_first, stored_ms = one.own_since(since_ms)
            scope = scope._replace(own_first=max(scope.own_first, own_first))
            if is_cut and stored_ms is not None:
                first = max(earliest, min(first, self._asked(partition, min(stored_ms, since_ms), first)))
        if (to_ms := self._span.to_ms) is not None:
            source_end = min(scope.source_end, self._asked(partition, to_ms, scope.source_end))
            scope = scope._replace(source_end=source_end, own_end=min(scope.own_end, one.own_since(to_ms)[0]))
        engine_first = one.report.first if self._span.from_ms is None else one.first_of(scope)
        return scope, ReadRange(first, end), ReadRange(engine_first, one.report.end)

    def _dual_queue(self, one: "_QueueBounds", scope: QueueScope) -> tuple[QueueScope, ReadRange, ReadRange]:
        partition, since_ms = one.partition, self._span.from_ms
        earliest, end = self._asked(partition, EARLIEST, 0), self._asked(partition, STABLE_END, 0)
        if (kept_ms := self._kept_since(one, earliest, end)) is not None:
            since_ms = max(since_ms or 0, kept_ms + DUAL_MARGIN_MS)
        first = earliest if since_ms is None else max(earliest, self._asked(partition, since_ms, end))
        own_first = one.report.first if since_ms is None else one.own_since(since_ms)[0]
        scope = scope._replace(
            source_first=one.source_first(first), source_end=end, own_first=own_first, own_end=one.report.end
        )
        if (to_ms := self._span.to_ms) is not None:
            source_end = min(end, self._asked(partition, to_ms, end))
            scope = scope._replace(source_end=source_end, own_end=min(scope.own_end, one.own_since(to_ms)[0]))
        engine_first = one.report.first if since_ms is None else one.first_of(scope)
        return scope, ReadRange(first, end), ReadRange(engine_first, one.report.end)

    def _kept_since(self, one: "_QueueBounds", earliest: int, end: int) -> int | None:
        """Time of the oldest message of the side that has deleted more; None: nothing was deleted."""
        times = [stored_at(one.link, one.stored, one.partition.number, one.report.first) if one.report.first else None]
        if earliest > 0:
            with closing(self._open_reader()) as reader:
                times.append(first_time(reader, one.partition, earliest, end))
        return max((each for each in times if each is not None), default=None)

    def _asked(self, partition: Partition, at: int, otherwise: int) -> int:
        """An offset as it was when the topics were looked at, where it was asked for then."""
        place = partition, at
        if place not in self._offsets:
            self._offsets[place] = self._kafka.offsets([partition], at)[partition]
        found = self._offsets[place]
        return otherwise if found is None else found


class _QueueBounds:
    """Questions to the engine about one queue."""

    def __init__(
        self, link: EngineLink, stored: str, partition: Partition, state: SourceState, report: QueueReport
    ) -> None:
        self.link, self.stored, self._state = link, stored, state
        self.partition, self.report = partition, report

    def source_first(self, kafka_first: int) -> int:
        """The first Kafka offset that both sides still have."""
        source = self._first_source()
        if source is None:
            return kafka_first
        first = max(source.start, kafka_first)
        if self.report.first > source.first:
            found = source_offset_at(self.link, self.stored, self.partition.number, self.report.first)
            first = max(first, found.source_offset if found is not None else self._state.next)
        return first

    @property
    def copied_first(self) -> int:
        """The engine offset at which the records of the present source begin."""
        source = self._first_source()
        return 0 if source is None else source.first

    def _first_source(self) -> QueueSource | None:
        """The first acceptance of the present source: it may have been accepted again, after lost records.

        None: nothing was copied from Kafka. Its partition was added when proxies wrote to both sides already.
        """
        if not self._state.sources:
            return None
        found = self._state.sources[-1]
        for each in reversed(self._state.sources):
            if each.source != found.source:
                break
            found = each
        return found

    def own_since(self, time_ms: int) -> tuple[int, int | None]:
        """The offset of the first message stored since then or a little earlier, and when it was stored."""
        queue = self.partition.number
        at = queue_reports(self.link, self.stored, [queue], at_time_ms=time_ms)[queue].next
        return at, stored_at(self.link, self.stored, queue, at)

    def first_of(self, scope: QueueScope) -> int:
        """Where the first message of the scope is."""
        found = engine_offset_of(self.link, self.stored, self.partition.number, scope.source_first)
        copied = found.offset if found is not None else self._state.end
        return max(self.report.first, min(copied, scope.own_first))
