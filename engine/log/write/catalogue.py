"""The catalogue of topics: names, ids and numbers of queues. Creating and forgetting one appends TOPIC records."""

from collections.abc import Iterable

from common.names import split_stored_name
from engine.errors import EngineConfigError, UnknownTopicError
from engine.log.format import CONTROL_TOPIC_ID, KIND_TOPIC, pack_topic
from engine.log.types import Topic
from engine.log.view import View
from engine.log.write.checkpoint import Checkpoints
from engine.log.write.control import ControlWriter
from engine.log.write.native import Appender

NAMES_CACHED_MAX = 100_000


class TopicCatalogue:
    """Topics as the log has them now.

    `apply` is what a TOPIC record means, so a log that follows another one can apply records it did not write.
    """

    def __init__(self, view: View, next_topic_id: int) -> None:
        self._view, self.next_topic_id = view, next_topic_id
        self._names: dict[str, Topic] = {}

    def topic(self, name: str) -> Topic | None:
        """The topic of that name or stored name, or None."""
        if "@" not in name:
            return self._newest(name)
        name, made_ms = split_stored_name(name)
        found = self._newest(name)
        return None if found is None or found.made_ms not in (0, made_ms) else found

    def _newest(self, name: str) -> Topic | None:
        found = self._names.get(name)
        if found is None and (found := self._view.topic(name)) is not None:
            if len(self._names) >= NAMES_CACHED_MAX:
                self._names.clear()
            self._names[name] = found
        return found

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of that id, or None."""
        return self._view.topic_by_id(topic_id)

    def topics(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Topic]:
        """Up to `limit` topics in the byte order of their names: those with the prefix, after the name `after`."""
        return self._view.topics(prefix, after, limit)

    def load_queue_count(self, topic_id: int) -> int:
        """Number of the topic's queues, 0 when there is no such topic. Topic 0 is the log's own and counts as none."""
        if topic_id == CONTROL_TOPIC_ID or topic_id >= self.next_topic_id:
            return 0
        topic = self._view.topic_by_id(topic_id)
        return topic.queues if topic else 0

    def apply(self, topic: Topic) -> None:
        """Take over a topic whose record is in the log."""
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)
        self._view.put_topic(topic)
        self._names.pop(topic.name, None)


class TopicCreator:
    """Creates topics, adds queues to them, and forgets them.

    Attributes:
        topics_position: end of the last record of a topic that this process has appended; 0: none. Recovery syncs those
            of earlier processes.
    """

    def __init__(
        self, catalogue: TopicCatalogue, control: ControlWriter, appender: Appender, checkpoints: Checkpoints,
        queues_max: int,
    ) -> None:  # fmt: skip
        self._catalogue, self._control, self._appender = catalogue, control, appender
        self._checkpoints, self._queues_max = checkpoints, queues_max
        self.topics_position = 0

    def create_topics(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        """Find or create each (name, queues), in order. A topic with fewer queues grows, one with more stays as it is.

        A stored name with a later creation than the topic's makes another topic of that name.

        In the page cache on return. An id leaves the process only after `when_durable(topics_position, …)`, also one
        that an earlier call has created: a power cut could take the record, and the next topic would get the id.

        Raises:
            EngineConfigError: a number of queues is out of range; nothing was created.
            UnknownTopicError: the topic was deleted and created again since; nothing was created.
            DiskFullError: the first of many topics may exist.
        """
        asked = [(*split_stored_name(name), queues) for name, queues in wanted]
        changed: dict[str, Topic] = {}
        next_id = self._catalogue.next_topic_id
        for name, made_ms, queues in asked:
            if not 1 <= queues <= self._queues_max:
                raise EngineConfigError([f"topic {name}: {queues} queues: use 1..{self._queues_max}"])
            known = changed.get(name) or self._catalogue.topic(name)
            if known is None or 0 < known.made_ms < made_ms:
                changed[name] = Topic(next_id, name, queues, made_ms)
                next_id += 1
            elif 0 < made_ms < known.made_ms:
                raise UnknownTopicError(
                    f"topic {name}: its definition of {made_ms} was replaced by one of {known.made_ms} (Unix ms): "
                    "if that persists, delete and create the topic on a machine with the right time"
                )
            elif known.queues < queues or known.made_ms < made_ms:
                changed[name] = Topic(known.id, name, max(known.queues, queues), made_ms or known.made_ms)
        topics = list(changed.values())
        payloads = [pack_topic(topic.id, topic.stored_name, topic.queues) for topic in topics]
        self._control.append(KIND_TOPIC, payloads, lambda first, end: self._apply(topics[first:end]))
        self._checkpoints.bound_pending()
        return [changed.get(name) or self._known(name) for name, _, _ in asked]

    def forget_topic(self, topic: Topic) -> None:
        """Append that the topic is gone: a record without queues. In the page cache on return. Raises DiskFullError."""
        gone = topic._replace(queues=0)
        payload = pack_topic(gone.id, gone.stored_name, gone.queues)
        self._control.append(KIND_TOPIC, [payload], lambda first, end: self._apply([gone]))
        self._checkpoints.bound_pending()

    def _apply(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._catalogue.apply(topic)
            self._appender.set_topic(topic.id, topic.queues)
        self.topics_position = self._appender.end_position

    def _known(self, name: str) -> Topic:
        found = self._catalogue.topic(name)
        assert found is not None
        return found
