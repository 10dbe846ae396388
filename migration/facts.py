"""Facts of the world for a plan's state machine: immutable, gathered anew before each decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from common.ops.send_pages import TopicSendCounts
from migration.kafka_groups import UnnamedGroups
from migration.leftovers import LeftDeadLetters, LeftDelayedMessages

IN_KAFKA, IN_ENGINE, MISSING = "kafka", "engine", ""
"""Homes of a planned topic; MISSING: it has no entry in the configuration."""


@dataclass(frozen=True)
class GroupFacts:
    """One group of a plan that reads a topic on both sides.

    Attributes:
        has_entry: whether the plan's dual read is in the configuration.
        is_ending: whether the bridges have left, or are to leave, the group on Kafka.
        is_drained: whether a group with an order reads the engine's side.
        kafka_lag: committed records that the group has to read in Kafka.
        waiting: messages from Kafka that it has to acknowledge in the engine.
        unread: the engine's own messages that it has to acknowledge. None of the last three: it was not asked for.
        lost: why it cannot read on in Kafka, where what it had to read was deleted; empty: it can, or it was not asked for.
    """

    name: str
    has_order: bool = False
    has_entry: bool = False
    is_ending: bool = False
    is_drained: bool = False
    kafka_lag: int | None = None
    waiting: int | None = None
    unread: int | None = None
    lost: str = ""


@dataclass(frozen=True)
class TopicFacts:
    """One topic of the plan.

    Attributes:
        mark: the plan that has the topic; empty: none.
        home: IN_KAFKA: its home is the plan's cluster; IN_ENGINE; or MISSING.
        is_moved: whether this plan has moved it to the engine.
        secondary: IN_KAFKA or IN_ENGINE: proxies write there, too; MISSING: its home alone.
        fence: id of this plan's fence in its entry; empty: it has none.
        has_copy_in, has_copy_out: whether the plan's copy is in the configuration.
        has_copy_start: whether its entry says where a copy for all groups begins.
        kafka_ends, engine_ends: end offsets by partition and queue; empty: not asked for.
        copied_in: per partition, the offset up to which the engine has it; empty: unknown, or no source is accepted.
        copied_out: per queue, the offset up to which Kafka has it; empty: not asked for.
        copy_nexts: per queue, Kafka's offset with which a copy goes on; 0: also where it has not begun.
        stable_ends: per partition, up to where readers of committed records see it. A copy cannot pass it.
        cut_ms: time of the last cut; 0: there was none.
        cut_firsts: where the engine's own messages begin, from the record of the last cut; empty: there was none.
        kafka_firsts: where Kafka's messages begin that came since the same record.
        is_being_copied: whether a bridge has claimed the copy from Kafka; False: none has, or it was not asked for.
        copied_ends: per queue, the engine's offset after the last record that was copied from Kafka.
        copied_firsts: per queue, the engine's offset before the first record that was copied, or will be.
        faults: why the copy cannot go on or cannot be trusted, one sentence each.
        foreign: why the topic in Kafka is not the one that these figures belong to; empty: it is, or it was not asked for.
        kafka_id: of the topic in Kafka whose ends these are; empty: it does not exist, or was not asked for.
        losses: by partition, why its copy stands still although the topic is the same one: Kafka has lost records, or the
            engine cannot store the next one.
        tail: why what was copied last is not on the other side any more; empty: it is, or it was not asked for.
        uncopied: per partition whose next record is known to be one that the copy lacks: its number and that offset.
        policy: of the topic in Kafka, such as "delete"; empty: it was not asked for.
        queues, partitions: their numbers, by its entry and by Kafka; 0: they were not asked for.
        groups: of the plan, where they read both sides.
        delayed: delayed messages that wait in the engine; None: they were not asked for.
        dead: dead letters of the topic, and of its hidden topics; empty: none, or they were not asked for.
    """

    mark: str = ""
    home: str = MISSING
    is_moved: bool = False
    secondary: str = MISSING
    fence: str = ""
    has_copy_in: bool = False
    has_copy_out: bool = False
    has_copy_start: bool = False
    kafka_ends: tuple[int, ...] = ()
    stable_ends: tuple[int, ...] = ()
    engine_ends: tuple[int, ...] = ()
    copied_in: tuple[int, ...] = ()
    copied_out: tuple[int, ...] = ()
    copy_nexts: tuple[int, ...] = ()
    cut_ms: int = 0
    cut_firsts: tuple[int, ...] = ()
    kafka_firsts: tuple[int, ...] = ()
    is_being_copied: bool = False
    copied_ends: tuple[int, ...] = ()
    copied_firsts: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()
    foreign: str = ""
    kafka_id: str = ""
    losses: Mapping[int, str] = field(default_factory=dict)
    tail: str = ""
    uncopied: tuple[tuple[int, int], ...] = ()
    policy: str = ""
    queues: int = 0
    partitions: int = 0
    groups: tuple[GroupFacts, ...] = ()
    delayed: LeftDelayedMessages | None = None
    dead: tuple[LeftDeadLetters, ...] = ()

    @property
    def behind_in(self) -> int | None:
        """Records of Kafka that the engine lacks; None: unknown."""
        return behind(self.copied_in, self.stable_ends or self.kafka_ends)

    @property
    def losses_of_home(self) -> tuple[str, ...]:
        """The standstills that matter where the topic is: at home in the engine, what Kafka has lost are copies."""
        return self.standstills if self.home != IN_ENGINE else tuple(filter(None, [self.foreign]))

    @property
    def standstills(self) -> tuple[str, ...]:
        """Why the copy from Kafka cannot go on by itself, one sentence each."""
        return (self.foreign,) if self.foreign else tuple(self.losses.values())

    @property
    def open_transactions(self) -> list[tuple[int, int, int]]:
        """Partitions in which a transaction is open, each with its first offset and the partition's end."""
        pairs = enumerate(zip(self.stable_ends, self.kafka_ends, strict=False))
        return [(number, stable, end) for number, (stable, end) in pairs if stable < end]

    @property
    def behind_out(self) -> int | None:
        """Messages of the engine that Kafka lacks; None: unknown."""
        return behind(self.copied_out, self.engine_ends)

    @property
    def shape(self) -> str:
        """Why its queues are not its partitions in Kafka; empty: they are, or it was not asked for."""
        if self.queues == self.partitions:
            return ""
        missing = "a Kafka bridge adds the queues within seconds: is one running?"
        if self.queues > self.partitions:
            missing = "each queue needs its partition: add partitions there"
        return f"{self.queues:,} queues and {self.partitions:,} partitions in Kafka: {missing}"

    @property
    def beyond_out(self) -> list[int]:
        """Queues whose copy to Kafka is beyond their end: the engine has lost messages, or has others."""
        pairs = zip(self.copied_out, self.engine_ends, strict=False)
        return [queue for queue, (at, end) in enumerate(pairs) if at > end]

    @property
    def written(self) -> list[tuple[int, int]]:
        """Per queue, messages that each side has got since the last record: (Kafka, engine). Empty: not known."""
        if not self.secondary or len(self.kafka_ends) != len(self.engine_ends) or not self.cut_firsts:
            return []
        each = (self.kafka_ends, self.kafka_firsts, self.engine_ends, self.cut_firsts)
        rows = zip_longest(*each, fillvalue=0)  # what was added since the record, has begun at 0 on both sides
        return [(kafka - first, engine - own) for kafka, first, engine, own in rows]

    @property
    def late_queues(self) -> list[int]:
        """Queues into which a record of Kafka came after the cut: its writer bypasses the proxies.

        Kafka's end offsets do not tell: the reverse copy and its transactions move them, too. A queue that was added since
        the cut may have the engine's own messages before a bridge copies its partition: its record begins behind them.
        """
        firsts = (*self.cut_firsts, *self.copied_firsts[len(self.cut_firsts) :])
        pairs = zip_longest(self.copied_ends, firsts[: len(self.copied_ends)], fillvalue=0)
        return [queue for queue, (end, first) in enumerate(pairs) if self.home == IN_ENGINE and end > first]


def behind(copied: tuple[int, ...], ends: tuple[int, ...]) -> int | None:
    """Offsets between two positions, over all queues; None: a position is unknown."""
    if not ends or len(copied) != len(ends):
        return None
    return sum(max(0, end - at) for at, end in zip(copied, ends, strict=True))


class WaitingCopies(NamedTuple):
    """Messages of one topic that wait in one journal for their secondary.

    Attributes:
        topic: "*": of topics that the journal does not tell one by one.
        ids: the first of them, as (queue, id); None: whether and where the primary has it is not known.
    """

    journal: str
    topic: str
    messages: int
    ids: tuple[tuple[int | None, str], ...] = ()


class SendErrors(NamedTuple):
    """Sends of the last minutes.

    Attributes:
        topics: outcomes over all proxies, of the plan's topics that were sent to.
        silent: proxies whose page cannot be read, each as a sentence shows it.
    """

    topics: Mapping[str, TopicSendCounts] = {}
    silent: tuple[str, ...] = ()


NOT_ASKED = SendErrors()


@dataclass(frozen=True)
class Facts:
    """
    Attributes:
        topics: of the plan, by name, in its order.
        late: processes that have not applied the present configuration, each as a sentence shows it.
        unsent: processes with sends of before the present configuration whose outcome is not known.
        producers: number of producer proxies.
        unjournaled: why a producer proxy, or its journal, cannot be relied on, one sentence each.
        uncopied: producer proxies that may hold messages of fenced topics that one side lacks.
        waiting: what journals hold of the plan's topics, by journal and topic.
        doubts: what no journal can repair: ranges to compare, messages that a secondary refuses; one sentence each.
        errors: outcomes of sends in the last minutes; empty: they were not asked for.
        unnamed: groups that read the topics in Kafka and are not in the plan; None: they were not asked for.
        waited_ms: time for which the present sub-step has been at work in this run.
        quiet_ms: time for which no end offset of the side that is left has grown, in this run.
        soaked_ms: time since the plan's topics were cut.
    """

    topics: Mapping[str, TopicFacts]
    late: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()
    producers: int = 0
    unjournaled: tuple[str, ...] = ()
    uncopied: tuple[str, ...] = ()
    waiting: tuple["WaitingCopies", ...] = ()
    doubts: tuple[str, ...] = ()
    errors: SendErrors = NOT_ASKED
    unnamed: UnnamedGroups | None = None
    waited_ms: int = 0
    quiet_ms: int = 0
    soaked_ms: int = 0


@dataclass(frozen=True)
class Rules:
    """The plan's bounds, and what the operator accepts.

    Attributes:
        error_rate: share of failed sends that a topic may have; 1: any.
        is_order_strict: whether both sides must have the messages of a key in the same order.
        accepted: gates that the operator accepts although they are red.
        fence_ms: time after which proxies end a fence by themselves.
    """

    plan: str
    lag_messages: int
    soak_ms: int
    is_order_strict: bool = True
    error_rate: float = 1.0
    accepted: frozenset[str] = frozenset()
    fence_ms: int = 60_000
