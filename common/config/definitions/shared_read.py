"""Dual read: a group that reads a Kafka topic and the engine's topic of the same name. One entry per group and topic."""

from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.topic import MADE_MS_MAX, QUEUES_MAX
from common.config.setting import FIXED, setting
from common.config.text_values import TextValue
from common.config.values import Flag, WholeNumber
from common.names import NAME_RULE, is_name
from common.shared_reads import hidden_topic

SHARED_READS_MAX = 10_000


@dataclass(frozen=True)
class SharedReadDefinition(Definition):
    """One dual read. Its name is that of the hidden topic, `common.shared_reads.hidden_topic` of group and topic.

    The bridge is a member of the Kafka consumer group with the group's name. What Kafka assigns to it is copied into
    the hidden topic, partition n into queue n, and pulls of the topic by the group lease from there, too.

    Attributes:
        made_ms: time of the entry's creation, as of topics.
    """

    kind: ClassVar[str] = "shared_read"

    group: str = setting(
        "", TextValue(), "Share the Kafka topic with the members of this group on Kafka.", unset="none: it must be given",
        change=FIXED, is_stored_always=True,
    )  # fmt: skip
    topic: str = setting(
        "", TextValue(), "Deliver to pulls of this topic.", unset="none: it must be given", change=FIXED,
        is_stored_always=True,
    )  # fmt: skip
    cluster: str = setting(
        "", TextValue(), "Read from this Kafka cluster.", unset="none: it must be given", change=FIXED,
        is_stored_always=True,
    )  # fmt: skip
    kafka_topic: str = setting(
        "", TextValue(), "Read the Kafka topic of this name.", unset="the topic's own name", change=FIXED
    )
    queues: int = setting(
        1, WholeNumber("", 1, QUEUES_MAX), "Number of partitions in Kafka; the bridge follows it.", option=None
    )
    is_drained: bool = setting(
        False,
        Flag(),
        "Kafka's side is read to the cut, and acknowledged: groups with an order read the engine's side from now on.",
        change="by the bridge, after the cut",
        option=None,
    )
    is_ending: bool = setting(
        False,
        Flag(),
        "The bridge leaves the group on Kafka; what it has copied is still delivered.",
        change="by a migration plan",
        option=None,
    )
    plan: str = setting(
        "", TextValue(), "The migration plan that made the dual read and may end it.", unset="none: an operator did",
        change=FIXED,
    )  # fmt: skip
    made_ms: int = 0

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {"made_ms": checks.integer("made_ms", 0, 0, MADE_MS_MAX)}

    def to_value(self) -> dict[str, Any]:
        return {**super().to_value(), **({"made_ms": self.made_ms} if self.made_ms else {})}

    @property
    def topic_of_kafka(self) -> str:
        """The name of the Kafka topic."""
        return self.kafka_topic or self.topic

    def check_together(self, checks: Checks) -> None:
        for field in ("group", "topic"):
            if not is_name(getattr(self, field)):
                checks.fault(field, NAME_RULE)
        if not self.cluster:
            checks.fault("cluster", "it is missing: use the name of a Kafka cluster")
        if self.name != (wanted := hidden_topic(self.group, self.topic)):
            checks.fault("name", f"the entry of this group and topic is {wanted}: use that name")
