"""The form of a request for consumption, checked as a whole, and the group's settings and grants that follow from it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from common.admin.applications import Grants
from common.config.definitions import GroupDefinition
from common.config.errors import InvalidDefinition
from common.dead_letters import is_dead_letter_topic
from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.names import NAME_RULE, is_name
from common.retry import parse_retry, parse_retry_text
from console.asking.form_rules import choice, described
from console.asking.setting_fields import SettingField, by_name, setting_field
from console.errors import InvalidForm

TOPICS_MAX = 50
STARTS = ("earliest", "latest")
FIELDS: Mapping[str, SettingField] = by_name(
    setting_field(GroupDefinition, "order", "Order", words={
        "none": "none: fastest", "key": "messages of a key one after another", "queue": "messages of a queue one after another",
    }),
    setting_field(GroupDefinition, "on_failure", "After the last attempt", words={
        "skip": "dead-letter it", "park": "retry, and hold its key back", "stop": "retry, and hold its queue back",
    }),
    setting_field(GroupDefinition, "invisible_ms", "Lease", "lease_s", "seconds", 1_000),
    setting_field(GroupDefinition, "attempts_max", "Attempts"),
    setting_field(GroupDefinition, "rate_messages", "Limit"),
    setting_field(GroupDefinition, "rate_bytes", "Limit in bytes", "rate_kib", "KiB/s", 1 << 10),
    setting_field(GroupDefinition, "dead_letter_retention_ms", "Keep dead letters", "dead_letter_hours"),
)  # fmt: skip
"""Fields that are settings of the group as they stand."""
DEFAULTS: Mapping[str, str] = {
    **{name: each.default for name, each in FIELDS.items()},
    "name": "", "description": "", "team": "", "application": "", "topics": "", "filter": "", "start": "latest",
    "retry": "", "reads_dead_letters": "",
}  # fmt: skip


@dataclass(frozen=True)
class ConsumptionWish:
    """The fields of a request for consumption.

    Attributes:
        name: of the group.
        application: pulls as the group; it exists.
        filter: empty: all messages of the topics.
        retry: waits between attempts as commands take them; empty: the default.
        reads_dead_letters: the application may pull the group's dead letters.
    """

    name: str
    description: str
    application: str
    topics: tuple[str, ...]
    filter: str
    order: str
    on_failure: str
    start: str
    lease_s: int
    attempts_max: int
    retry: str
    dead_letter_hours: int
    reads_dead_letters: bool
    rate_messages: int
    rate_kib: int

    def settings(self) -> dict[str, Any]:
        """The group's settings as the configuration stores them."""
        found: dict[str, Any] = {"topics": list(self.topics), "start": self.start, "filter": self.filter}
        found |= {each.setting.name: each.stored(getattr(self, name)) for name, each in FIELDS.items()}
        return {**found, "retry": parse_retry_text(self.retry)} if self.retry else found

    def grants(self) -> Grants:
        """Grants that the application gets: for these topics, this group, and its dead letters where they were asked for."""
        dead_letters = (self.name,) if self.reads_dead_letters else ()
        return Grants(pull_topics=self.topics, pull_groups=(self.name,), dead_letters=dead_letters)

    def to_value(self) -> dict[str, Any]:
        """The wish as the database keeps it."""
        return {**asdict(self), "topics": list(self.topics)}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> "ConsumptionWish":
        known = {each.name: value[each.name] for each in fields(cls)}
        return cls(**{**known, "topics": tuple(known["topics"])})


def topics_of(text: str) -> tuple[str, ...]:
    """The topics of a field: separated by white space or commas, each once."""
    return tuple(dict.fromkeys(filter(None, re.split(r"[\s,]+", text))))


def parse_consumption(form: Mapping[str, str]) -> ConsumptionWish:
    """Read a form. Raises InvalidForm with the faults of all fields."""
    faults: dict[str, str] = {}
    found: dict[str, Any] = {name: form.get(name, "").strip() for name in ("name", "application", "filter", "retry")}
    if fault := group_name_fault(found["name"]):
        faults["name"] = fault
    if not is_name(found["application"]):
        faults["application"] = "Choose the application that will pull."
    found["description"] = described(form, "what reads the messages, and what for", faults)
    found["topics"] = topics_of(form.get("topics", ""))
    if fault := topics_fault(found["topics"]):
        faults["topics"] = fault
    if found["filter"] and (fault := filter_fault(found["filter"])):
        faults["filter"] = fault
    if found["retry"] and (fault := _retry_fault(found["retry"])):
        faults["retry"] = fault
    found |= {name: each.parse(form, faults) for name, each in FIELDS.items()}
    found["start"] = choice(form, "start", STARTS, faults)
    found["reads_dead_letters"] = form.get("reads_dead_letters", "") == "on"
    if not faults and found["order"] == "none" and found["on_failure"] != "skip":
        faults["on_failure"] = "Without an order a failed message is always skipped: choose skip, or an order."
    wish = ConsumptionWish(**found)
    if not faults:
        faults |= _faults_as_definition(wish)
    if faults:
        raise InvalidForm(faults)
    return wish


def group_name_fault(name: str) -> str:
    """Why no group can have this name; empty: one can."""
    try:
        GroupDefinition.from_value(name, {})
    except InvalidDefinition as error:
        return f"{error.faults[0][:1].upper()}{error.faults[0][1:]}."
    return ""


def topics_fault(topics: tuple[str, ...]) -> str:
    """Why these cannot be the topics of a group; empty: they can."""
    if not 1 <= len(topics) <= TOPICS_MAX:
        return f"Name 1 to {TOPICS_MAX} topics, one per line."
    wrong = next((each for each in topics if not is_name(each)), None)
    if wrong is not None:
        return f"“{wrong[:80]}” is not a name: {NAME_RULE}."
    dead = next((each for each in topics if is_dead_letter_topic(each)), None)
    return f"{dead} has dead letters: ask to read those of the group in place of it." if dead else ""


def filter_fault(text: str) -> str:
    """Why this is no filter; empty: it is one."""
    try:
        read_filter(text)
    except FilterError as error:
        return f"The filter has a fault {error}"
    return ""


def _retry_fault(text: str) -> str:
    try:
        if len(text) <= 2_000 and parse_retry(parse_retry_text(text)) is not None:
            return ""
    except ValueError:
        pass
    return "Give waits in ms as 1000,5000,60000, or first_ms=1000,factor=2,max_ms=60000,jitter=0.2."


def _faults_as_definition(wish: ConsumptionWish) -> dict[str, str]:
    """Faults that the configuration would find beyond the rules of the fields."""
    try:
        GroupDefinition.from_value(wish.name, wish.settings())
    except InvalidDefinition as error:
        return {"": "; ".join(error.faults)}
    return {}
