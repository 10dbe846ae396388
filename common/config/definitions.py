"""What the configuration means: topics, families, groups and applications as frozen values.

Each has `from_value(name, value)`, which raises InvalidDefinition with all faults at once, and `to_value()`. Fields that this
version does not know are kept in `extra` and written back, so that an older command does not drop what a newer one set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from common.config.checks import Checks
from common.config.group_checks import checked_filter, checked_retry, checked_topic_filters
from common.dead_letters import PREFIX_RULE, is_dead_letter_topic
from common.ids import ID_WINDOW_MS_MAX
from common.limits.depth import Bounds
from common.retry import DEFAULT_RETRY, Retry

DURABILITIES = ("memory", "fsync", "replicated", "replicated_fsync")
BUFFERS = ("off", "disk", "redis", "redis+disk")
QUEUES_MAX = 10_000
RETENTION_MS_MAX = 10 * 366 * 86_400_000
RETENTION_BYTES_MAX = 1 << 50
DELAY_MS_MAX = 400 * 86_400_000
BODY_BYTES_MAX = 16_000_000  # below the frame limit, which has to hold the rest of the call too
LIVE_KEYS_MAX = 2
GRANTS_MAX = 200
RATE_MESSAGES_MAX = 1_000_000_000
RATE_BYTES_MAX = 1 << 50
GRADES = ("high", "normal", "low")
BODY_FORMATS = ("any", "json")
ADDRESSES_MAX = 100
CERTIFICATES_MAX = 20
REQUIRED_GROUPS_MAX = 16
REQUIRED_MAX = 64  # of a message's properties; it can have no more
ORDERS = ("none", "key", "queue")
ON_FAILURE = ("skip", "park", "stop")


@dataclass(frozen=True)
class TopicDefinition:
    """
    Attributes:
        queues: more allow more consumers in queue order at once and cost a little memory each; may grow, never shrink.
        durability: what a send that asks for TOPIC_DEFAULT gets.
        body_bytes_max: larger messages are refused with TOO_LARGE.
        retention_ms: how old a message gets before it can no longer be read; 0: as the engine keeps all (72 h by default).
        retention_bytes: how much of the topic is kept, shared evenly among its queues; 0: as much as its age allows.
        buffer: where the producer proxy keeps messages durably while the engine does not take them, if it has that store.
        rate_messages, rate_bytes: what all proxies together take a second, bytes of encoded messages; 0: no limit.
        grade: what is refused first when the engine cannot follow: low, then normal, then high.
        body_format: `json` refuses a body that is no JSON text.
        required_properties: a message without one of them is refused.
        id_window_ms: for how long a second message with the same client-set id is a DUPLICATE; 0: never. Longer takes 43 bytes of the
            engine's memory for each id in the window.
        delay_ms_max: how far ahead a message may be delayed; 0: as long as the topic's messages are kept.
        required_groups: those whose backlog counts for the bounds below. One that has never pulled is behind by all that is kept.
        backlog_messages, backlog_bytes, backlog_age_ms: sends are BACKLOGGED while the slowest required group is further behind than that,
            and until it is below 70 % of it; the age is its oldest message's. 0: no bound.
        family: which one defines the topic; None: it has an entry of its own. Never stored.
    """

    kind: ClassVar[str] = "topic"

    name: str
    queues: int = 8
    durability: str = "replicated"
    body_bytes_max: int = 4 << 20
    extra: Mapping[str, Any] = field(default_factory=dict)
    family: str | None = None
    retention_ms: int = 0
    retention_bytes: int = 0
    buffer: str = "off"
    rate_messages: int = 0
    rate_bytes: int = 0
    grade: str = "normal"
    body_format: str = "any"
    required_properties: tuple[str, ...] = ()
    id_window_ms: int = 600_000
    delay_ms_max: int = DELAY_MS_MAX
    required_groups: tuple[str, ...] = ()
    backlog_messages: int = 0
    backlog_bytes: int = 0
    backlog_age_ms: int = 0

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        checks = Checks(cls.kind, name, value)
        made = cls(
            name=cls._checked_name(checks),
            queues=checks.integer("queues", cls.queues, 1, QUEUES_MAX),
            durability=checks.choice("durability", cls.durability, DURABILITIES),
            body_bytes_max=checks.integer("body_bytes_max", cls.body_bytes_max, 1, BODY_BYTES_MAX),
            retention_ms=checks.integer("retention_ms", cls.retention_ms, 0, RETENTION_MS_MAX),
            retention_bytes=checks.integer("retention_bytes", cls.retention_bytes, 0, RETENTION_BYTES_MAX),
            buffer=checks.choice("buffer", cls.buffer, BUFFERS),
            rate_messages=checks.integer("rate_messages", 0, 0, RATE_MESSAGES_MAX),
            rate_bytes=checks.integer("rate_bytes", 0, 0, RATE_BYTES_MAX),
            grade=checks.choice("grade", cls.grade, GRADES),
            body_format=checks.choice("body_format", cls.body_format, BODY_FORMATS),
            required_properties=checks.texts("required_properties", REQUIRED_MAX),
            id_window_ms=checks.integer("id_window_ms", cls.id_window_ms, 0, ID_WINDOW_MS_MAX),
            delay_ms_max=checks.integer("delay_ms_max", cls.delay_ms_max, 0, DELAY_MS_MAX),
            required_groups=checks.names("required_groups", REQUIRED_GROUPS_MAX),
            backlog_messages=checks.integer("backlog_messages", 0, 0, RATE_MESSAGES_MAX),
            backlog_bytes=checks.integer("backlog_bytes", 0, 0, RATE_BYTES_MAX),
            backlog_age_ms=checks.integer("backlog_age_ms", 0, 0, RETENTION_MS_MAX),
            extra=checks.rest(),
        )
        if made.backlog_bounds != Bounds() and not made.required_groups:
            checks.fault("required_groups", "must name a group where there is a bound of the backlog")
        checks.raise_faults()
        return made

    @staticmethod
    def _checked_name(checks: Checks) -> str:
        name = checks.own_name()
        if is_dead_letter_topic(name):
            checks.fault("name", PREFIX_RULE)
        return name

    @property
    def backlog_bounds(self) -> Bounds:
        return Bounds(self.backlog_messages, self.backlog_bytes, self.backlog_age_ms)

    @property
    def has_depth_breaker(self) -> bool:
        return bool(self.required_groups) and self.backlog_bounds != Bounds()

    def to_value(self) -> dict[str, Any]:
        return {
            **self.extra,
            "queues": self.queues,
            "durability": self.durability,
            "body_bytes_max": self.body_bytes_max,
            **self._set_fields(),
        }

    def _set_fields(self) -> dict[str, Any]:
        """What is stored only where it is set: there may be a million topics."""
        own = {name: getattr(self, name) for name in _STORED_WHERE_SET}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in own.items()
            if value != getattr(TopicDefinition, name)
        }


_STORED_WHERE_SET = (
    "delay_ms_max",
    "retention_ms",
    "retention_bytes",
    "id_window_ms",
    "buffer",
    "rate_messages",
    "rate_bytes",
    "grade",
    "body_format",
    "required_properties",
    "required_groups",
    "backlog_messages",
    "backlog_bytes",
    "backlog_age_ms",
)


@dataclass(frozen=True)
class FamilyDefinition(TopicDefinition):
    """What every topic is whose name begins with the prefix and that has no entry of its own. `name` is the prefix with `*`."""

    kind: ClassVar[str] = "family"

    @staticmethod
    def _checked_name(checks: Checks) -> str:
        name = checks.own_family()
        if is_dead_letter_topic(name):
            checks.fault("name", PREFIX_RULE)
        return name

    @property
    def prefix(self) -> str:
        return self.name.removesuffix("*")

    def topic(self, name: str) -> TopicDefinition:
        """The definition of the family's topic of this name."""
        # Of values that were checked: a family is asked once for each of its topics, and there may be a million.
        topic = object.__new__(TopicDefinition)
        topic.__dict__.update(self.__dict__, name=name, family=self.name)
        return topic


@dataclass(frozen=True)
class GroupDefinition:
    """
    Attributes:
        topics: what a pull without topics reads; empty: every pull names its topics.
        invisible_ms: for how long a delivery is leased. Longer: a crashed consumer's messages come back later; shorter: slow
            consumers get theirs twice.
        start: where the group begins on a topic that it has not read before; with "time" at start_at_ms, Unix time.
        paused: nothing is handed out to it; its progress stays where it is.
        attempts_max: deliveries of one message before it goes to the dead-letter queue.
        retry: how long a message waits after a RETRY that names no delay.
        filter: which messages of its topics it takes (docs/filters.md); empty: all.
        topic_filters: filters of single topics, which hold there in place of `filter`.
        order: key: one key's messages one after another; queue: one queue's. None is fastest.
        on_failure: after the last attempt, with an order. skip: to the dead letters; park: go on trying while the key's later
            messages wait and there is room for them; stop: go on trying while the whole queue waits.
        dead_letter_retention_ms: how old a dead letter gets; 0: as the engine keeps all. Longer: the segments that hold one
            stay as long, with everything in them.
        rate_messages, rate_bytes: what all proxies together deliver to it a second; 0: no limit.
    """

    name: str
    topics: tuple[str, ...] = ()
    invisible_ms: int = 30_000
    start: str = "earliest"
    attempts_max: int = 16
    extra: Mapping[str, Any] = field(default_factory=dict)
    retry: Retry = DEFAULT_RETRY
    order: str = "none"
    on_failure: str = "skip"
    dead_letter_retention_ms: int = 0
    rate_messages: int = 0
    rate_bytes: int = 0
    filter: str = ""
    topic_filters: Mapping[str, str] = field(default_factory=dict)
    start_at_ms: int = 0
    paused: bool = False

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        checks = Checks("group", name, value)
        made = cls(
            name=checks.own_name(),
            topics=checks.names("topics"),
            invisible_ms=checks.integer("invisible_ms", cls.invisible_ms, 100, 12 * 3_600_000),
            start=checks.choice("start", cls.start, ("earliest", "latest", "time")),
            start_at_ms=checks.integer("start_at_ms", 0, 0, 1 << 62),
            paused=checks.boolean("paused", False),
            attempts_max=checks.integer("attempts_max", cls.attempts_max, 1, 1_000),
            retry=checked_retry(checks, cls.retry),
            order=checks.choice("order", cls.order, ORDERS),
            on_failure=checks.choice("on_failure", cls.on_failure, ON_FAILURE),
            dead_letter_retention_ms=checks.integer("dead_letter_retention_ms", 0, 0, RETENTION_MS_MAX),
            rate_messages=checks.integer("rate_messages", 0, 0, RATE_MESSAGES_MAX),
            rate_bytes=checks.integer("rate_bytes", 0, 0, RATE_BYTES_MAX),
            filter=checked_filter(checks, "filter", checks.take("filter", "")),
            topic_filters=checked_topic_filters(checks),
            extra=checks.rest(),
        )
        if made.order == "none" and made.on_failure != "skip":
            checks.fault("on_failure", "must be skip unless there is an order")
        checks.raise_faults()
        return made

    def to_value(self) -> dict[str, Any]:
        return {
            **self.extra,
            "topics": list(self.topics),
            "invisible_ms": self.invisible_ms,
            "start": self.start,
            **({"start_at_ms": self.start_at_ms} if self.start == "time" else {}),
            **({"paused": True} if self.paused else {}),
            "attempts_max": self.attempts_max,
            "retry": self.retry.to_value(),
            "order": self.order,
            "on_failure": self.on_failure,
            "dead_letter_retention_ms": self.dead_letter_retention_ms,
            **_set_rates(self),
            "filter": self.filter,
            "topic_filters": dict(self.topic_filters),
        }

    @property
    def filters(self) -> dict[str, str]:
        """By topic, "" for all that are not named; without those that take everything because nothing was said."""
        return {topic: text for topic, text in {**self.topic_filters, "": self.filter}.items() if text}


@dataclass(frozen=True)
class Key:
    """One of an application's live keys. The secret's ASCII bytes, as shown once to the user, are the HMAC key."""

    key_id: str
    secret: str = field(repr=False)
    created_at_ms: int


@dataclass(frozen=True, order=True)
class Grant:
    """`action` send or pull; `pattern` a name or a prefix with `*` behind it. Pull patterns hold for topics and for groups."""

    action: str
    pattern: str


@dataclass(frozen=True)
class ApplicationDefinition:
    """An application without a key cannot authenticate; one without a grant may do nothing.

    Attributes:
        rate_messages, rate_bytes: what it may send a second through all proxies together; 0: no limit.
        addresses: networks that it may call from, as in `10.0.0.0/8`; empty: from anywhere.
        certificates: names, one of which the certificate has to bear that its TLS connections show; empty: it needs none.
    """

    name: str
    keys: tuple[Key, ...] = ()
    grants: tuple[Grant, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    rate_messages: int = 0
    rate_bytes: int = 0
    addresses: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()

    @classmethod
    def from_value(cls, name: str, value: Mapping[str, Any]) -> Self:
        checks = Checks("application", name, value)
        made = cls(
            name=checks.own_name(),
            keys=tuple(_keys(checks)),
            grants=tuple(_grants(checks)),
            rate_messages=checks.integer("rate_messages", 0, 0, RATE_MESSAGES_MAX),
            rate_bytes=checks.integer("rate_bytes", 0, 0, RATE_BYTES_MAX),
            addresses=checks.networks("addresses", ADDRESSES_MAX),
            certificates=checks.texts("certificates", CERTIFICATES_MAX),
            extra=checks.rest(),
        )
        checks.raise_faults()
        return made

    def to_value(self) -> dict[str, Any]:
        """With the secrets: for the store only."""
        keys = [{"key_id": key.key_id, "secret": key.secret, "created_at_ms": key.created_at_ms} for key in self.keys]
        return {
            **self.extra,
            "keys": keys,
            "grants": [[grant.action, grant.pattern] for grant in self.grants],
            **_set_rates(self),
            **({"addresses": list(self.addresses)} if self.addresses else {}),
            **({"certificates": list(self.certificates)} if self.certificates else {}),
        }

    def without_secrets(self) -> dict[str, Any]:
        """For people, logs and the audit journal."""
        keys = [{"key_id": key.key_id, "created_at_ms": key.created_at_ms} for key in self.keys]
        return {**self.to_value(), "keys": keys}

    def key(self, key_id: str) -> Key | None:
        return next((key for key in self.keys if key.key_id == key_id), None)


Definition = TopicDefinition | FamilyDefinition | GroupDefinition | ApplicationDefinition


def _set_rates(limited: GroupDefinition | ApplicationDefinition) -> dict[str, int]:
    rates = {"rate_messages": limited.rate_messages, "rate_bytes": limited.rate_bytes}
    return {name: rate for name, rate in rates.items() if rate}


def _keys(checks: Checks) -> Iterable[Key]:
    given = checks.list_of("keys", Mapping, LIVE_KEYS_MAX)
    for at, item in enumerate(given):
        inner = checks.inside(f"keys[{at}]", item)
        yield Key(
            key_id=inner.text("key_id", 1, 64),
            secret=inner.text("secret", 16, 256),
            created_at_ms=inner.integer("created_at_ms", 0, 0, 1 << 53),
        )
    ids = [item.get("key_id") for item in given]
    if len(set(map(str, ids))) != len(ids):
        checks.fault("keys", "two keys have the same key_id")


def _grants(checks: Checks) -> Iterable[Grant]:
    for at, item in enumerate(checks.list_of("grants", list, GRANTS_MAX)):
        if len(item) != 2 or item[0] not in ("send", "pull"):
            checks.fault(f"grants[{at}]", 'must be ["send" or "pull", pattern]')
        elif checks.pattern(f"grants[{at}]", item[1]):
            yield Grant(item[0], item[1])
