"""The form of a request for a topic, checked as a whole, and the topic's settings that follow from it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from common.config.definitions import TopicDefinition
from common.config.definitions.topic import KAFKA_DURABILITIES
from common.config.errors import InvalidDefinition
from common.config.text_values import ENGINE_HOME, kafka_cluster_of
from console.asking.form_rules import Bounds, choice, described, whole_number
from console.asking.message_schema import text_fault
from console.asking.setting_fields import SettingField, by_name, setting_field
from console.errors import InvalidForm

RATE_HEADROOM = 1.5  # the limit is above the peak that was asked for, so that a good day is not refused
QUEUE_MESSAGES_S = 2_000
QUEUES_LEAST, QUEUES_MOST = 8, 256
DELAY_NONE_MS = 1
FIELDS: Mapping[str, SettingField] = by_name(
    setting_field(TopicDefinition, "body_bytes_max", "Largest body"),
    setting_field(TopicDefinition, "retention_ms", "Retention"),
    setting_field(TopicDefinition, "delay_ms_max", "Longest delay", "delay_hours"),
    setting_field(TopicDefinition, "body_format", "Format", words={
        "any": "Any bytes", "json": "JSON: other bodies are rejected",
    }),
    setting_field(TopicDefinition, "durability", "A send is confirmed when it is", words={
        "memory": "in the memory of one broker", "fsync": "on the disk of one broker",
        "replicated": "in the memory of all in-sync brokers", "replicated_fsync": "on the disks of all in-sync brokers",
    }),
    setting_field(TopicDefinition, "buffer", "While the engine does not accept messages", words={
        "off": "refuse them", "disk": "keep them on the proxy's disk", "redis": "keep them in Redis",
        "redis+disk": "keep them in Redis, else on disk",
    }),
    setting_field(TopicDefinition, "grade", "In overload it is rejected", words={
        "low": "first (low)", "normal": "second (normal)", "high": "last (high)",
    }),
)  # fmt: skip
"""Fields that are settings of the topic."""
_WHOLE: Mapping[str, Bounds] = {
    "peak_messages": (1, 1_000_000, "messages/s"),
    "day_messages": (1, 100_000_000_000, "messages per day"),
    "body_bytes": FIELDS["body_bytes_max"].bounds,
    "body_bytes_max": FIELDS["body_bytes_max"].bounds,
    "retention_hours": (1, FIELDS["retention_hours"].bounds[1], "hours"),
    "delay_hours": (0, FIELDS["delay_hours"].bounds[1], "hours"),
}
"""0 hours would mean the engine's retention, which is not known here, and a delay as long as messages are kept."""
ORDER_WORDS: Mapping[str, str] = {
    "none": "none is needed",
    "key": "messages of a key one after another: senders set the key",
    "all": "all messages one after another, in a single queue",
}
"""Needs of an order, in words."""
_CHOICES = {
    **{name: each.choices for name, each in FIELDS.items() if each.choices}, "order": tuple(ORDER_WORDS), "replies": ("no", "yes"),
}  # fmt: skip
DEFAULTS: Mapping[str, str] = {
    **{name: each.default for name, each in FIELDS.items() if each.choices},
    "peak_messages": "100", "day_messages": "1000000", "body_bytes": "500", "body_bytes_max": "65536",
    "retention_hours": "72", "delay_hours": "0", "body_schema": "", "order": "none", "replies": "no", "home": ENGINE_HOME, "name": "",
    "description": "", "team": "", "broker_groups": "",
}  # fmt: skip


@dataclass(frozen=True)
class TopicWish:
    """What a user asks for.

    Attributes:
        peak_messages: per second. day_messages: per day.
        body_bytes: of an average message; body_bytes_max: of the largest.
        delay_hours: longest delay of a delayed message; 0: none are sent.
        body_schema: JSON schema of the bodies; empty: none was given.
        order: a key of ORDER_WORDS. replies: "yes": requests with a reply are sent.
        home: "engine", or "kafka:" and the name of a cluster, where the topic exists already.
        broker_groups: names of those that are to have its messages, separated by commas; empty: all.
    """

    name: str
    description: str
    peak_messages: int
    day_messages: int
    body_bytes: int
    body_bytes_max: int
    retention_hours: int
    delay_hours: int
    durability: str
    grade: str
    buffer: str
    body_format: str
    body_schema: str = ""
    order: str = "none"
    replies: str = "no"
    home: str = ENGINE_HOME
    broker_groups: str = ""

    @property
    def group_names(self) -> list[str]:
        """The broker groups that are asked for."""
        return self.broker_groups.split(",") if self.broker_groups else []

    @property
    def kafka_cluster(self) -> str | None:
        """The Kafka cluster that is to be the home; None: the engine is."""
        return kafka_cluster_of(self.home)

    @property
    def queues(self) -> int:
        """Enough queues for the peak, as a power of two; one for a single order of all messages."""
        if self.order == "all":
            return 1
        wanted = max(QUEUES_LEAST, -(-self.peak_messages // QUEUE_MESSAGES_S))
        return min(QUEUES_MOST, 1 << (wanted - 1).bit_length())

    def settings(self) -> dict[str, Any]:
        """The topic's settings as the configuration stores them."""
        found = {
            "queues": self.queues,
            "durability": self.durability,
            "body_bytes_max": self.body_bytes_max,
            "retention_ms": FIELDS["retention_hours"].stored(self.retention_hours),
            "rate_messages": max(1, math.ceil(self.peak_messages * RATE_HEADROOM)),
            "delay_ms_max": FIELDS["delay_hours"].stored(self.delay_hours)
            or DELAY_NONE_MS,  # 0 would mean: as long as it is kept
            "grade": self.grade,
            "buffer": self.buffer,
            "body_format": self.body_format,
        }
        if self.kafka_cluster is None:
            return {**found, "broker_groups": self.group_names} if self.group_names else found
        del found["delay_ms_max"]
        if self.order != "all":
            del found["queues"]  # as many as partitions
        return {**found, "home": self.home, "id_window_ms": 0}

    def to_value(self) -> dict[str, Any]:
        """The wish as the database keeps it."""
        return asdict(self)


def parse_wish(form: Mapping[str, str]) -> TopicWish:
    """Read a form. Raises InvalidForm with the faults of all fields."""
    faults: dict[str, str] = {}
    found: dict[str, Any] = {"name": form.get("name", "").strip()}
    if fault := name_fault(found["name"]):
        faults["name"] = fault
    found["description"] = described(form, "what the messages are for", faults)
    found |= {field: whole_number(form, field, bounds, faults) for field, bounds in _WHOLE.items()}
    found |= {field: choice(form, field, choices, faults) for field, choices in _CHOICES.items()}
    if not faults.keys() & {"body_bytes", "body_bytes_max"} and found["body_bytes"] > found["body_bytes_max"]:
        faults["body_bytes_max"] = "The largest message is smaller than the average one."
    faults |= _faults_of_schema(form, found)
    faults |= _faults_of_home(form, found)
    faults |= _faults_of_groups(form, found)
    if not faults and found["order"] == "all" and found["peak_messages"] > QUEUE_MESSAGES_S:
        faults["order"] = f"All messages in one order take a single queue, for up to {QUEUE_MESSAGES_S:,} messages/s."
    if faults:
        raise InvalidForm(faults)
    return TopicWish(**found)


def _faults_of_schema(form: Mapping[str, str], found: dict[str, Any]) -> dict[str, str]:
    """Faults of the schema's text, by field. `schema_fault` checks whether it is a valid schema."""
    text = found["body_schema"] = form.get("body_schema", "").replace("\r\n", "\n").strip()
    if fault := text_fault(text):
        return {"body_schema": fault}
    if text and found["body_format"] != "json":
        return {"body_format": "A JSON schema is for bodies that are JSON: choose JSON, or leave the schema out."}
    return {}


def _faults_of_home(form: Mapping[str, str], found: dict[str, Any]) -> dict[str, str]:
    """Settings that a Kafka cluster does not support, by field."""
    home = found["home"] = form.get("home", "").strip()
    if home == ENGINE_HOME:
        return {}
    if not kafka_cluster_of(home):
        return {"home": "Choose the engine or a Kafka cluster."}
    faults = {}
    if found["delay_hours"]:
        faults["delay_hours"] = "Kafka has no delayed messages: use 0, or the engine as the home."
    if found["replies"] == "yes":
        faults["replies"] = "Requests with a reply need the engine as the home."
    if found["durability"] not in KAFKA_DURABILITIES:
        faults["durability"] = (
            "Kafka's acknowledgement says nothing about disks: choose a durability in memory, or the engine as the home."
        )
    return faults


def _faults_of_groups(form: Mapping[str, str], found: dict[str, Any]) -> dict[str, str]:
    names = list(dict.fromkeys(form.get("broker_groups", "").replace(",", " ").split()))
    found["broker_groups"] = ",".join(names)
    if names and kafka_cluster_of(found["home"]):
        return {"broker_groups": "A Kafka cluster has its own brokers: leave it empty, or use the engine as the home."}
    try:
        TopicDefinition.check_settings("topic", {"broker_groups": names})
    except InvalidDefinition as error:
        return {"broker_groups": f"{error.faults[0]}."}
    return {}


def name_fault(name: str) -> str:
    """Why no topic can have this name; empty: one can."""
    try:
        TopicDefinition.from_value(name, {})
    except InvalidDefinition as error:
        return f"{error.faults[0][:1].upper()}{error.faults[0][1:]}."
    return ""
