"""Quota of a team: bounds over all its topics, and the excess that a request would make. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from console.asking.form_rules import Bounds, whole_number
from console.errors import InvalidForm

GIB = 1 << 30
BOUNDS: Mapping[str, Bounds] = {
    "topics_max": (0, 1_000_000, "topics; 0: no bound"),
    "messages_max": (0, 1_000_000_000, "messages/s; 0: no bound"),
    "day_gib_max": (0, 1_000_000, "GiB per day; 0: no bound"),
}


class TeamUse(NamedTuple):
    """What a team holds, or what a request adds.

    Attributes:
        messages: per second, the sum of its topics' limits. day_bytes: of disk, as its requests have said.
        unlimited: topics without a limit of messages, which `messages` cannot count.
    """

    topics: int = 0
    messages: int = 0
    day_bytes: int = 0
    unlimited: int = 0

    def plus(self, more: "TeamUse") -> "TeamUse":
        """Both together."""
        return TeamUse(*(a + b for a, b in zip(self, more, strict=True)))


@dataclass(frozen=True)
class TeamQuota:
    """Bounds over all topics of a team; 0: none."""

    topics_max: int = 0
    messages_max: int = 0
    day_gib_max: int = 0

    def excess(self, held: TeamUse, more: TeamUse) -> list[str]:
        """Sentences on bounds that the team would pass by `more`. What a request does not add to is no reason."""
        after = held.plus(more)
        rows = (
            (more.topics, after.topics, self.topics_max, f"{after.topics:,} topics", f"{self.topics_max:,}"),
            (more.messages, after.messages, self.messages_max, f"{after.messages:,} messages/s", f"{self.messages_max:,}"),
            (more.day_bytes, after.day_bytes, self.day_gib_max * GIB, f"{after.day_bytes / GIB:,.1f} GiB per day",
             f"{self.day_gib_max:,}"),
        )  # fmt: skip
        found = [
            f"{words} of the team in all: its quota is {most}."
            for adds, n, bound, words, most in rows
            if adds > 0 and n > bound > 0
        ]
        if more.unlimited and self.messages_max:
            found.append("A topic without a limit of messages: the team's quota bounds them.")
        return found

    def to_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> "TeamQuota":
        """Raises InvalidForm with the faults of all fields."""
        faults: dict[str, str] = {}
        found = {name: whole_number(form, name, bounds, faults) for name, bounds in BOUNDS.items()}
        if faults:
            raise InvalidForm(faults)
        return cls(**found)
