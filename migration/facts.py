"""Facts of the world for a plan's state machine: immutable, gathered anew before each decision."""

from collections.abc import Mapping
from dataclasses import dataclass

IN_KAFKA, IN_ENGINE, MISSING = "kafka", "engine", ""
"""Homes of a planned topic; MISSING: it has no entry in the configuration."""


@dataclass(frozen=True)
class TopicFacts:
    """One topic of the plan.

    Attributes:
        mark: the plan that has the topic; empty: none.
        home: IN_KAFKA: its home is the plan's cluster; IN_ENGINE; or MISSING.
        is_moved: whether this plan has moved it to the engine.
        fence: id of this plan's fence in its entry; empty: it has none.
        has_copy_in, has_copy_out: whether the plan's copy is in the configuration.
        kafka_ends, engine_ends: end offsets by partition and queue; empty: not asked for.
        copied_in: per partition, the offset up to which the engine has it; empty: unknown, or no source is accepted.
        copied_out: per queue, the offset up to which Kafka has it; empty: not asked for.
        stable_ends: per partition, up to where readers of committed records see it. A copy cannot pass it.
        cut_ms: time of the last cut; 0: there was none.
        cut_firsts: where the engine's own messages begin, from the record of the last cut; empty: there was none.
        copied_ends: per queue, the engine's offset after the last record that was copied from Kafka.
        faults: why the copy cannot go on or cannot be trusted, one sentence each.
    """

    mark: str = ""
    home: str = MISSING
    is_moved: bool = False
    fence: str = ""
    has_copy_in: bool = False
    has_copy_out: bool = False
    kafka_ends: tuple[int, ...] = ()
    stable_ends: tuple[int, ...] = ()
    engine_ends: tuple[int, ...] = ()
    copied_in: tuple[int, ...] = ()
    copied_out: tuple[int, ...] = ()
    cut_ms: int = 0
    cut_firsts: tuple[int, ...] = ()
    copied_ends: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def behind_in(self) -> int | None:
        """Records of Kafka that the engine lacks; None: unknown."""
        return behind(self.copied_in, self.stable_ends or self.kafka_ends)

    @property
    def behind_out(self) -> int | None:
        """Messages of the engine that Kafka lacks; None: unknown."""
        return behind(self.copied_out, self.engine_ends)

    @property
    def late_queues(self) -> list[int]:
        """Queues into which a record of Kafka came after the cut: its writer bypasses the proxies.

        Kafka's end offsets do not tell: the reverse copy and its transactions move them, too.
        """
        pairs = zip(self.copied_ends, self.cut_firsts, strict=False)
        return [queue for queue, (end, first) in enumerate(pairs) if self.home == IN_ENGINE and end > first]


def behind(copied: tuple[int, ...], ends: tuple[int, ...]) -> int | None:
    """Offsets between two positions, over all queues; None: a position is unknown."""
    if not ends or len(copied) != len(ends):
        return None
    return sum(max(0, end - at) for at, end in zip(copied, ends, strict=True))


@dataclass(frozen=True)
class Facts:
    """
    Attributes:
        topics: of the plan, by name, in its order.
        late: processes that have not applied the present configuration, each as a sentence shows it.
        unsent: processes with sends of before the present configuration whose outcome is not known.
        waited_ms: time for which the present sub-step has been at work in this run.
        quiet_ms: time for which no end offset of the side that is left has grown, in this run.
        soaked_ms: time since the plan's topics were cut.
    """

    topics: Mapping[str, TopicFacts]
    late: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()
    waited_ms: int = 0
    quiet_ms: int = 0
    soaked_ms: int = 0


@dataclass(frozen=True)
class Rules:
    """The plan's bounds, and what the operator accepts.

    Attributes:
        accepted: gates that the operator accepts although they are red.
    """

    plan: str
    lag_messages: int
    soak_ms: int
    accepted: frozenset[str] = frozenset()
