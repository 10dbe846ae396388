"""Topics and families of topics: their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.common import (
    GRADES,
    RATE_BYTES_MAX,
    RATE_MESSAGES_MAX,
    RETENTION_MS_MAX,
    rate_bytes,
    rate_messages,
)
from common.config.definitions.moves import CutRecord, Fence
from common.config.definitions.queue_ranges import checked_ranges, stored_ranges, with_new_range
from common.config.setting import FIXED, GROWS, Option, setting
from common.config.text_values import ENGINE_HOME, HomeOfTopic, OffsetList, SecondaryOfTopic, kafka_cluster_of
from common.config.values import NameList, OneOf, TextList, WholeNumber
from common.dead_letters import PREFIX_RULE, is_dead_letter_topic
from common.ids import ID_WINDOW_MS_MAX
from common.limits.backlog import Bounds
from common.placement import GROUPS_MAX, QueueRange, Ranges
from common.quoting import listed
from common.shared_reads import PREFIX_RULE as HIDDEN_RULE
from common.shared_reads import is_hidden_topic

DURABILITIES = ("memory", "fsync", "replicated", "replicated_fsync")
KAFKA_DURABILITIES = ("memory", "replicated")
BUFFERS = ("off", "disk", "redis", "redis+disk")
BODY_FORMATS = ("any", "json")
QUEUES_MAX = 10_000
RETENTION_BYTES_MAX = 1 << 50
DELAY_MS_MAX = 400 * 86_400_000
BODY_BYTES_MAX = 16_000_000  # below the frame limit, because a frame holds the rest of the call too
REQUIRED_GROUPS_MAX = 16
MADE_MS_MAX = 10**15
REQUIRED_MAX = 64  # a message cannot have more properties

_HOUR_MS, _MIB = 3_600_000, 1 << 20
_NO_BOUND = "0: no bound"


@dataclass(frozen=True)
class TopicDefinition(Definition):
    """A topic's settings.

    Attributes:
        family: name of the family that defines the topic; None: the topic has an entry of its own. Never stored.
        made_ms: time of the entry's creation, by which a topic that was deleted and created again is another topic to
            the engines; 0: unknown, as for the topics of a family.
        fence: set while the topic's home changes: nothing is sent to it meanwhile.
        cut: of the last change of its home; None: there was none.
        placement: the ranges of its queues, once `broker_groups` has changed; empty: it never has.
    """

    kind: ClassVar[str] = "topic"

    queues: int = setting(
        8,
        WholeNumber("", 1, QUEUES_MAX),
        "Divide the topic into this many queues.",
        more="More queues let more consumers read in queue order at once, and cost a little memory each.",
        change=GROWS,
        is_stored_always=True,
    )
    durability: str = setting(
        "replicated",
        OneOf("", DURABILITIES),
        "Confirm a send that leaves the choice to the topic once the message is this durable.",
        is_stored_always=True,
    )
    body_bytes_max: int = setting(
        4 << 20,
        WholeNumber("bytes", 1, BODY_BYTES_MAX),
        "Reject messages with a larger body.",
        is_stored_always=True,
    )
    family: str | None = None
    made_ms: int = 0
    retention_ms: int = setting(
        0,
        WholeNumber("ms", 0, RETENTION_MS_MAX),
        "Delete messages that are older than this.",
        unset="0: the engine's retention, 72 hours unless it was started with another",
        option=Option("retention-hours", "hours", _HOUR_MS),
    )
    retention_bytes: int = setting(
        0,
        WholeNumber("bytes", 0, RETENTION_BYTES_MAX),
        "Keep at most this much of the topic, shared evenly by its queues, and delete the oldest messages beyond it.",
        unset="0: limited by age only",
        option=Option("retention-mib", "MiB", _MIB),
    )
    buffer: str = setting(
        "off",
        OneOf("", BUFFERS),
        "Keep messages durably in this store of the producer proxy while the engine does not accept them.",
        more="It takes effect at proxies that have this store.",
    )
    rate_messages: int = rate_messages("Accept")
    rate_bytes: int = rate_bytes("Accept")
    grade: str = setting(
        "normal",
        OneOf("", GRADES),
        "Set the topic's importance in overload: low is rejected first, then normal, then high.",
    )
    body_format: str = setting(
        "any",
        OneOf("", BODY_FORMATS),
        "Reject bodies of another format; json means a JSON text.",
    )
    required_properties: tuple[str, ...] = setting(
        (),
        TextList("", REQUIRED_MAX),
        "Reject messages without this property.",
        unset="none: no property is required",
        option=Option("required-property", metavar="NAME"),
    )
    id_window_ms: int = setting(
        600_000,
        WholeNumber("ms", 0, ID_WINDOW_MS_MAX),
        "Answer DUPLICATE when a client-set id is repeated within this time.",
        unset="0: never",
        more="A longer window costs 43 bytes of the engine's memory per id in it.",
        option=Option("id-window-s", "seconds", 1000),
    )
    delay_ms_max: int = setting(
        DELAY_MS_MAX,
        WholeNumber("ms", 0, DELAY_MS_MAX),
        "Reject messages with a longer delay.",
        unset="0: as long as the topic's messages are kept",
        option=Option("delay-hours-max", "hours", _HOUR_MS),
    )
    required_groups: tuple[str, ...] = setting(
        (),
        NameList("", REQUIRED_GROUPS_MAX),
        "Count this group's backlog for the bounds of the backlog.",
        unset="none: no group counts, so there can be no bound",
        more="A group that has never pulled counts as fully behind.",
        option=Option("required-group", metavar="GROUP"),
    )
    backlog_messages: int = setting(
        0,
        WholeNumber("messages", 0, RATE_MESSAGES_MAX),
        "Reject sends while a required group has more unacknowledged messages.",
        unset=_NO_BOUND,
        more="Sends are accepted again below 70 % of the bound.",
    )
    backlog_bytes: int = setting(
        0,
        WholeNumber("bytes", 0, RATE_BYTES_MAX),
        "Reject sends while a required group has more unacknowledged bytes.",
        unset=_NO_BOUND,
        more="Sends are accepted again below 70 % of the bound.",
        option=Option("backlog-mib", "MiB", _MIB),
    )
    backlog_age_ms: int = setting(
        0,
        WholeNumber("ms", 0, RETENTION_MS_MAX),
        "Reject sends while a required group's oldest unacknowledged message is older.",
        unset=_NO_BOUND,
        more="Sends are accepted again below 70 % of the bound.",
        option=Option("backlog-s", "seconds", 1000),
    )
    home: str = setting(
        ENGINE_HOME,
        HomeOfTopic(),
        "Keep the topic's messages here: in the engine, or in a Kafka cluster under the same name.",
        more="A topic whose home is Kafka takes no delayed messages, requests and id window; see docs/kafka.md.",
        change=FIXED,
        option=Option("home", metavar="engine|kafka:NAME"),
    )
    copy_from: str = setting(
        "",
        OffsetList(),
        "Copy from Kafka from these offsets on, one per partition: `topic create --copy-from` fills them in.",
        unset="none: from the first record that Kafka has",
        change=FIXED,
        option=None,
    )
    secondary: str = setting(
        "",
        SecondaryOfTopic(),
        "Write each message here too, after its home has it: to the engine, or to a Kafka cluster.",
        unset="none: messages are in the topic's home alone",
        more="Migration plans set it: they check that both sides fit, and end it; see docs/dual-write.md.",
        option=None,
    )
    broker_groups: tuple[str, ...] = setting(
        (),
        NameList("", GROUPS_MAX),
        "Store the topic's messages in this broker group.",
        unset="none: in all broker groups",
        more="A change adds as many queues as take messages, in the new groups; the others take no more messages.",
        option=Option("broker-group", metavar="NAME"),
    )
    fence: Fence | None = None
    cut: CutRecord | None = None
    placement: Ranges = ()

    @classmethod
    def checked_name(cls, checks: Checks) -> str:
        name = checks.own_name()
        if is_dead_letter_topic(name):
            checks.fault("name", PREFIX_RULE)
        if is_hidden_topic(name):
            checks.fault("name", HIDDEN_RULE)
        return name

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {
            "made_ms": checks.integer("made_ms", 0, 0, MADE_MS_MAX),
            "fence": Fence.checked(checks, checks.take("fence", None)),
            "cut": CutRecord.checked(checks, checks.take("cut", None)),
            "placement": checked_ranges(checks, checks.take("placement", [])),
        }

    def to_value(self) -> dict[str, Any]:
        value = super().to_value()
        if self.made_ms:
            value["made_ms"] = self.made_ms
        if self.placement:
            value["placement"] = stored_ranges(self.placement)
        return value | {name: mark.to_value() for name in ("fence", "cut") if (mark := getattr(self, name)) is not None}

    def complete(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_new_range(self, value)

    def check_together(self, checks: Checks) -> None:
        if self.backlog_bounds != Bounds() and not self.required_groups:
            checks.fault("required_groups", "the list is empty: name a group, or remove the bounds of the backlog")
        if self.kafka_cluster is not None:
            self._check_kafka_home(checks)
        if self.secondary:
            self._check_secondary(checks)
        if self.placement or self.broker_groups:
            self._check_placement(checks)

    def _check_placement(self, checks: Checks) -> None:
        if len(set(self.broker_groups)) < len(self.broker_groups):
            checks.fault("broker_groups", "a broker group is listed twice: list each once")
        if self.kafka_cluster is not None:
            checks.fault("broker_groups", "leave it empty on a Kafka home: its brokers are not ours")
        if self.placement and self.secondary:
            checks.fault("secondary", "a topic whose broker groups have changed has no second side: leave it empty")
        if self.placement and (
            self.placement[-1].broker_groups != self.broker_groups or self.placement[-1].first >= self.queues
        ):
            checks.fault("placement", "its last range has to be that of broker_groups, and to have queues")

    def _check_secondary(self, checks: Checks) -> None:
        if self.secondary == self.home:
            checks.fault(
                "secondary", f"{self.secondary} is the topic's home already: name the other side, or leave it empty"
            )
        elif ENGINE_HOME not in (self.secondary, self.home):
            checks.fault("secondary", f"{self.secondary} beside {self.home}: one of both sides has to be the engine")

    def _check_kafka_home(self, checks: Checks) -> None:
        if self.durability not in KAFKA_DURABILITIES:
            rule = f"use {listed(KAFKA_DURABILITIES)}: Kafka's acknowledgement says nothing about disks"
            checks.fault("durability", f"{self.durability} is not possible on a Kafka home: {rule}")
        if self.id_window_ms:
            checks.fault("id_window_ms", f"{self.id_window_ms:,}: use 0 on a Kafka home, which finds no repeated ids")
        if self.required_groups:
            checks.fault("required_groups", "leave it empty on a Kafka home: the backlog there is not known")

    @property
    def kafka_cluster(self) -> str | None:
        """The Kafka cluster that is the topic's home; None: the engine is."""
        return kafka_cluster_of(self.home)

    @property
    def ranges(self) -> Ranges:
        """The ranges of its queues with their broker groups. Empty when no groups were ever named: all groups hold queues."""
        return self.placement or ((QueueRange(0, self.broker_groups),) if self.broker_groups else ())

    def continues(self, earlier: "TopicDefinition") -> bool:
        """Whether every queue of an earlier definition of the topic lives where it did."""
        now, then = (each.ranges or (QueueRange(0, ()),) for each in (self, earlier))
        return now[: len(then)] == then

    @property
    def first_queue(self) -> int:
        """The first queue that takes new messages; those before it are only read."""
        return self.placement[-1].first if self.placement else 0

    @property
    def first_offsets(self) -> tuple[int, ...]:
        """`copy_from` as numbers; partitions beyond them are copied from their first record."""
        return tuple(map(int, self.copy_from.split(","))) if self.copy_from else ()

    @property
    def kafka_clusters(self) -> set[str]:
        """The Kafka clusters that are its home or its secondary."""
        return {name for side in (self.home, self.secondary) if (name := kafka_cluster_of(side)) is not None}

    @property
    def backlog_bounds(self) -> Bounds:
        return Bounds(self.backlog_messages, self.backlog_bytes, self.backlog_age_ms)

    @property
    def has_backlog_breaker(self) -> bool:
        return bool(self.required_groups) and self.backlog_bounds != Bounds()


@dataclass(frozen=True)
class FamilyDefinition(TopicDefinition):
    """The settings of every topic whose name begins with a prefix and that has no entry of its own.

    `name` is the prefix followed by `*`.
    """

    kind: ClassVar[str] = "family"

    @classmethod
    def checked_name(cls, checks: Checks) -> str:
        name = checks.own_family()
        if is_dead_letter_topic(name):
            checks.fault("name", PREFIX_RULE)
        if is_hidden_topic(name):
            checks.fault("name", HIDDEN_RULE)
        return name

    def check_together(self, checks: Checks) -> None:
        super().check_together(checks)
        if self.kafka_cluster is not None:
            checks.fault("home", "a family has no home in Kafka: create its topics one by one")
        if self.secondary:
            checks.fault("secondary", "a family has no second side: create its topics one by one")
        if self.broker_groups:
            checks.fault("broker_groups", "a family is in all broker groups: create its topics one by one")

    @property
    def prefix(self) -> str:
        return self.name.removesuffix("*")

    def topic(self, name: str) -> TopicDefinition:
        """The definition of the family's topic of this name."""
        # Copied without checks: the values were checked, and a family may be asked for a million topics.
        topic = object.__new__(TopicDefinition)
        topic.__dict__.update(self.__dict__, name=name, family=self.name)
        return topic
