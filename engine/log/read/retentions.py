"""The retention of each topic: by its definition, or by the last one that the log keeps.

A definition that cannot be found or read is no reason to delete messages: a store may have lost it, or an entry may be
of a later version. So the log keeps the retention of each topic and family that has one of its own, as a PROGRESS
record under KEY. A topic whose definition is missing has the kept one; without that, it is unknown, and nothing of the
topic is deleted by age. A definition also counts less than a kept one that was more specific: a topic that has lost its
entry must not be taken for one of a family with a shorter retention. What was deleted on purpose says so itself, and
counts.
"""

import struct
from collections import OrderedDict
from typing import NamedTuple, Protocol

from engine.log.view import View
from engine.log.write.catalogue import TopicCatalogue
from engine.log.write.progress import ProgressRecords

KEY = b"\0retention "
"""Begins the keys: KEY ‖ "t" ‖ u32 topic id, big-endian, or KEY ‖ "f" ‖ prefix of a family."""

OWN = 1 << 16
"""Rank of a definition of a topic of its own; that of a family is the length of its prefix."""

CACHED_MAX = 100_000
STEP = 100
"""Topics per step of a round: about a millisecond."""

_VALUE = struct.Struct("<BQQ")
_VERSION = 1


class Retention(NamedTuple):
    """A topic's own retention; 0: none, so that the log's applies.

    Attributes:
        size_bytes: divided evenly among the topic's queues.
        rank: how specific the definition is that says so.
        family: prefix of the family that it is from; None: it is the topic's alone.
    """

    age_ms: int = 0
    size_bytes: int = 0
    rank: int = OWN
    family: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether it differs from the log's."""
        return bool(self.age_ms or self.size_bytes)


NONE = Retention()


class RetentionPolicy(Protocol):
    """Source of the topics' retentions."""

    @property
    def generation(self) -> int:
        """Rises with each change."""

    @property
    def is_known(self) -> bool:
        """False while the definitions have yet to be read: until then nothing counts as too old."""

    def of(self, topic: str) -> Retention | None:
        """The topic's own retention; None: no definition can be found or read, and it was not deleted on purpose."""


class NoRetentionPolicy:
    """The log's own retention for all topics."""

    generation = 0
    is_known = True

    def of(self, topic: str) -> Retention:
        """No topic has a retention of its own."""
        return NONE


class TopicRetentions:
    """Retentions by topic id, and the records that keep them.

    Args:
        default_ms: of topics without a retention of their own.
        policy: the configuration; without it the log's retention counts for all.
    """

    def __init__(
        self, view: View, records: ProgressRecords, catalogue: TopicCatalogue, default_ms: int,
        policy: RetentionPolicy | None = None,
    ) -> None:  # fmt: skip
        self._view, self._records, self._catalogue, self._default_ms = view, records, catalogue, default_ms
        self.policy: RetentionPolicy = policy or NoRetentionPolicy()
        self._generation = self._round_generation = -1
        self._found: OrderedDict[int, Retention | None] = OrderedDict()
        self._next_id = 1
        self.load()

    def load(self) -> None:
        """Read the records of families."""
        self._families = {key[len(KEY) + 1 :].decode(): value for key, value in self._records.progress(KEY + b"f")}
        self._found.clear()

    def of(self, topic_id: int) -> Retention | None:
        """The topic's own retention; None: it is unknown, so nothing of the topic may be deleted."""
        if self.policy.generation != self._generation or len(self._found) > CACHED_MAX:
            self._generation = self.policy.generation
            self._found.clear()
        if topic_id not in self._found:
            topic = self._view.topic_by_id(topic_id)
            self._found[topic_id] = NONE if topic is None else self._decide(topic_id, topic.name)
        return self._found[topic_id]

    def is_kept(self, topic_id: int) -> bool:
        """Whether the log keeps a retention of the topic's own: it had a definition that was not deleted on purpose."""
        return bool(self._view.get(_topic_key(topic_id)))

    def keep_some(self) -> bool:
        """Write the records of some more topics whose retention has changed. Returns whether the round has more.

        A round goes over all topics, after a start and after a change of the configuration; topics that come later
        are added to it. Raises DiskFullError; the same step works when there is room.
        """
        policy = self.policy
        if not policy.is_known or isinstance(policy, NoRetentionPolicy):
            return False
        end = self._catalogue.next_topic_id
        if self._next_id >= end and self._round_generation != policy.generation:
            self._next_id = 1
        if self._next_id == 1:
            self._round_generation = policy.generation
        after = min(self._next_id + STEP, end)
        for topic_id in range(self._next_id, after):
            self._keep(topic_id)
        self._next_id = after
        return after < end

    def _keep(self, topic_id: int) -> None:
        topic = self._view.topic_by_id(topic_id)
        defined = self.policy.of(topic.name) if topic is not None else None
        if topic is None or defined is None:
            return
        kept = self._kept(topic_id, topic.name)
        if kept is not None and kept.rank > defined.rank:
            return
        is_told = defined.is_own or (defined.family is None and self._family_of(topic.name) is not None)
        value = _VALUE.pack(_VERSION, defined.age_ms, defined.size_bytes) if is_told else b""
        if defined.family is not None:
            self._put(KEY + b"f" + defined.family.encode(), value)
            if value:
                self._families[defined.family] = value
            else:
                self._families.pop(defined.family, None)
            value = b""
        self._put(KEY + b"t" + topic_id.to_bytes(4, "big"), value)

    def _put(self, key: bytes, value: bytes) -> None:
        if (self._view.get(b"p" + key) or b"") != value:
            self._records.put_progress([(key, value)])

    def _decide(self, topic_id: int, name: str) -> Retention | None:
        defined, kept = self.policy.of(name), self._kept(topic_id, name)
        if defined is None:
            return kept if kept is not None and kept.is_own else None
        return self._longer(defined, kept) if kept is not None and kept.rank > defined.rank else defined

    def _longer(self, one: Retention, other: Retention) -> Retention:
        sizes = one.size_bytes, other.size_bytes
        age_ms = max(each.age_ms or self._default_ms for each in (one, other))
        return Retention(0 if age_ms == self._default_ms else age_ms, max(sizes) if all(sizes) else 0)

    def _kept(self, topic_id: int, name: str) -> Retention | None:
        value = self._view.get(_topic_key(topic_id))
        if value:
            return _parse(value, OWN, None)
        prefix = self._family_of(name)
        return None if prefix is None else _parse(self._families[prefix], len(prefix), prefix)

    def _family_of(self, name: str) -> str | None:
        return max((each for each in self._families if name.startswith(each)), key=len, default=None)


def _topic_key(topic_id: int) -> bytes:
    return b"p" + KEY + b"t" + topic_id.to_bytes(4, "big")


def _parse(value: bytes, rank: int, family: str | None) -> Retention | None:
    """A kept retention; None when a later version wrote it, so that the topic's is unknown."""
    if len(value) != _VALUE.size or value[0] != _VERSION:
        return None
    _, age_ms, size_bytes = _VALUE.unpack(value)
    return Retention(age_ms, size_bytes, rank, family)
