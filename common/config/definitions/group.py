"""Consumer groups: their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.common import ORDERS, RETENTION_MS_MAX, rate_bytes, rate_messages
from common.config.group_values import Backoff, FiltersByTopic, FilterText, StartPlace
from common.config.setting import Option, setting
from common.config.values import Flag, NameList, OneOf, WholeNumber
from common.retry import DEFAULT_RETRY, Retry

ON_FAILURE = ("skip", "park", "stop")
STARTS = ("earliest", "latest", "time")
TOPICS_MAX = 10_000
START_AT_MS_MAX = 1 << 62


@dataclass(frozen=True)
class GroupDefinition(Definition):
    """A consumer group's settings."""

    kind: ClassVar[str] = "group"

    topics: tuple[str, ...] = setting(
        (),
        NameList("", TOPICS_MAX),
        "Read this topic in pulls that name no topic.",
        unset="none: every pull names its topics",
        option=Option("topic", metavar="TOPIC"),
        is_stored_always=True,
    )
    invisible_ms: int = setting(
        30_000,
        WholeNumber("ms", 100, 12 * 3_600_000),
        "Lease a delivered message to its consumer for this long.",
        more="A longer lease redelivers a crashed consumer's messages later; a shorter one redelivers to slow consumers.",
        is_stored_always=True,
    )
    start: str = setting(
        "earliest",
        StartPlace("", STARTS),
        "Begin at this place on a topic that the group has not read before.",
        more="`time` begins with the first message stored at or after start_at_ms, `latest` with what is stored from now on.",
        option=Option("start", metavar="earliest|latest|TIME"),
        is_stored_always=True,
    )
    attempts_max: int = setting(
        16,
        WholeNumber("deliveries", 1, 1_000),
        "Move a message to the dead-letter queue after this many failed deliveries. A pull takes fewer messages with each "
        "attempt, and a message alone at its last one; with 1 a batch fails as a whole.",
        is_stored_always=True,
    )
    retry: Retry = setting(
        DEFAULT_RETRY,
        Backoff(),
        "Wait this long before the next delivery after a RETRY that names no delay.",
        option=Option("retry", metavar="MS,MS…|NAME=…,…"),
        is_stored_always=True,
    )
    order: str = setting(
        "none",
        OneOf("", ORDERS),
        "Deliver one after another the messages of a key, or of a queue.",
        more="`none` is fastest.",
        is_stored_always=True,
    )
    on_failure: str = setting(
        "skip",
        OneOf("", ON_FAILURE),
        "After the last attempt of a message, with an order: skip it to the dead-letter queue, park its key, or stop its queue.",
        more=(
            "`park` retries while the key's later messages wait and there is room for them. "
            "`stop` retries while the whole queue waits. With both the `attempt` of a delivery goes on beyond attempts_max."
        ),
        is_stored_always=True,
    )
    dead_letter_retention_ms: int = setting(
        0,
        WholeNumber("ms", 0, RETENTION_MS_MAX),
        "Delete dead letters that are older than this.",
        unset="0: the engine's retention",
        more="The log segments that hold a dead letter stay as long, with everything in them.",
        option=Option("dead-letter-retention-hours", "hours", 3_600_000, is_whole=True),
        is_stored_always=True,
    )
    rate_messages: int = rate_messages("Deliver")
    rate_bytes: int = rate_bytes("Deliver")
    filter: str = setting(
        "",
        FilterText(),
        "Deliver only messages that match this filter, see docs/filters.md.",
        unset="none: all messages",
        option=Option("filter", metavar="FILTER"),
        is_stored_always=True,
    )
    topic_filters: Mapping[str, str] = setting(
        {},
        FiltersByTopic(),
        "Filter this topic by FILTER, in place of the group's filter.",
        option=Option("topic-filter", metavar="TOPIC FILTER"),
        is_stored_always=True,
    )
    start_at_ms: int = setting(
        0,
        WholeNumber("Unix ms", 0, START_AT_MS_MAX),
        "Begin at this time where `start` is `time` or `latest`; for `latest` it is when that was set.",
        option=None,
    )
    paused: bool = setting(
        False,
        Flag(),
        "Deliver nothing to the group; its position stays.",
        change="by `penstock group pause` and `resume`",
        option=None,
    )

    def check_together(self, checks: Checks) -> None:
        if self.order == "none" and self.on_failure != "skip":
            checks.wrong("on_failure", self.on_failure, "needs an order", "use skip, or set order to key or queue")

    def to_value(self) -> dict[str, Any]:
        value = super().to_value()
        value.pop("start_at_ms", None)
        has_time = self.start == "time" or (self.start == "latest" and self.start_at_ms > 0)
        return {**value, "start_at_ms": self.start_at_ms} if has_time else value

    @property
    def filters(self) -> dict[str, str]:
        """Filters by topic, "" for all topics that are not named. An empty filter is left out."""
        return {topic: text for topic, text in {**self.topic_filters, "": self.filter}.items() if text}
