"""Copies between a topic of the engine and a Kafka topic, one kind per direction. The Kafka bridge follows and runs them."""

from dataclasses import dataclass
from typing import ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.setting import FIXED, setting
from common.config.text_values import TextValue

COPIES_MAX = 10_000


@dataclass(frozen=True)
class CopyDefinition(Definition):
    """One copy. Its name is that of the engine's topic, so a topic has at most one copy in each direction."""

    cluster: str = setting(
        "",
        TextValue(),
        "Copy from or to a topic of this Kafka cluster.",
        unset="none: it must be given",
        change=FIXED,
        is_stored_always=True,
    )
    kafka_topic: str = setting(
        "",
        TextValue(),
        "Copy from or to the Kafka topic of this name.",
        unset="the topic's own name",
        change=FIXED,
    )
    plan: str = setting(
        "",
        TextValue(),
        "The migration plan that made the copy and may end it.",
        unset="none: an operator did",
        change=FIXED,
    )

    @property
    def topic_of_kafka(self) -> str:
        """The name of the Kafka topic."""
        return self.kafka_topic or self.name

    def check_together(self, checks: Checks) -> None:
        if not self.cluster:
            checks.fault("cluster", "it is missing: use the name of a Kafka cluster")


@dataclass(frozen=True)
class CopyInDefinition(CopyDefinition):
    """A copy from Kafka into the engine; partition n is copied into queue n."""

    kind: ClassVar[str] = "copy_in"


@dataclass(frozen=True)
class CopyOutDefinition(CopyDefinition):
    """A copy from the engine to Kafka; queue n is copied into partition n."""

    kind: ClassVar[str] = "copy_out"


def copy_in_claim(cluster: str, kafka_topic: str, topic: str) -> str:
    """The name that a bridge claims for as long as it copies a topic of Kafka into one of the engine."""
    return f"kafka-copy/{cluster}/{kafka_topic}/{topic}"
