"""The form of a request for a topic, checked as a whole, and the topic's settings that follow from it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from common.config.definitions import GRADES, TopicDefinition
from common.config.definitions.topic import BODY_FORMATS, BUFFERS, DURABILITIES
from common.config.errors import InvalidDefinition
from console.asking.form_rules import choice, described, whole_number
from console.errors import InvalidForm

RATE_HEADROOM = 1.5  # the limit is above the peak that was asked for, so that a good day is not refused
QUEUE_MESSAGES_S = 2_000
QUEUES_LEAST, QUEUES_MOST = 8, 256
DELAY_NONE_MS = 1
_HOUR_MS = 3_600_000
_WHOLE = {
    "peak_messages": (1, 1_000_000, "messages/s"),
    "day_messages": (1, 100_000_000_000, "messages per day"),
    "body_bytes": (1, 16_000_000, "bytes"),
    "body_bytes_max": (1, 16_000_000, "bytes"),
    "retention_hours": (1, 87_600, "hours"),
    "delay_hours": (0, 9_600, "hours"),
}
_CHOICES = {"durability": DURABILITIES, "grade": GRADES, "buffer": BUFFERS, "body_format": BODY_FORMATS}
DEFAULTS: Mapping[str, str] = {
    "peak_messages": "100", "day_messages": "1000000", "body_bytes": "500", "body_bytes_max": "65536",
    "retention_hours": "72", "delay_hours": "0", "durability": "replicated", "grade": "normal", "buffer": "off",
    "body_format": "any", "name": "", "description": "", "team": "",
}  # fmt: skip


@dataclass(frozen=True)
class TopicWish:
    """What a user asks for.

    Attributes:
        peak_messages: per second. day_messages: per day.
        body_bytes: of an average message; body_bytes_max: of the largest.
        delay_hours: longest delay of a delayed message; 0: none are sent.
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

    @property
    def queues(self) -> int:
        """Enough queues for the peak, as a power of two."""
        wanted = max(QUEUES_LEAST, -(-self.peak_messages // QUEUE_MESSAGES_S))
        return min(QUEUES_MOST, 1 << (wanted - 1).bit_length())

    def settings(self) -> dict[str, Any]:
        """The topic's settings as the configuration stores them."""
        return {
            "queues": self.queues,
            "durability": self.durability,
            "body_bytes_max": self.body_bytes_max,
            "retention_ms": self.retention_hours * _HOUR_MS,
            "rate_messages": max(1, math.ceil(self.peak_messages * RATE_HEADROOM)),
            "delay_ms_max": self.delay_hours * _HOUR_MS or DELAY_NONE_MS,  # 0 would mean: as long as it is kept
            "grade": self.grade,
            "buffer": self.buffer,
            "body_format": self.body_format,
        }

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
    if faults:
        raise InvalidForm(faults)
    return TopicWish(**found)


def name_fault(name: str) -> str:
    """Why no topic can have this name; empty: one can."""
    try:
        TopicDefinition.from_value(name, {})
    except InvalidDefinition as error:
        return f"{error.faults[0][:1].upper()}{error.faults[0][1:]}."
    return ""
