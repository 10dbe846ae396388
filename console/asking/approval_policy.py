"""The policy for approval without a person: bounds that operators set, and the reasons why a request is beyond them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from console.asking.consumption_wish import ConsumptionWish
from console.asking.disk_use import disk_use
from console.asking.topic_wish import TopicWish
from console.errors import InvalidForm

GIB = 1 << 30
NUMBER_MAX = 1_000_000_000
SWITCHED_OFF = "Every request waits for an operator: the policy is switched off."


@dataclass(frozen=True)
class ApprovalPolicy:
    """Bounds; a request within all of them is approved at once.

    Attributes:
        is_on: without it every request waits for an operator.
        team_topics_max: topics that the team has already, and this one. team_groups_max: as well, of groups.
    """

    is_on: bool = False
    peak_messages_max: int = 1_000
    kept_gib_max: int = 20
    retention_hours_max: int = 168
    queues_max: int = 16
    team_topics_max: int = 50
    team_groups_max: int = 50

    def reasons(self, wish: TopicWish, team_topics: int) -> list[str]:
        """Why a person has to decide; empty: nobody has to."""
        if not self.is_on:
            return [SWITCHED_OFF]
        bounds = (
            (wish.peak_messages, self.peak_messages_max, "messages/s at the peak"),
            (wish.retention_hours, self.retention_hours_max, "hours of retention"),
            (wish.queues, self.queues_max, "queues"),
            (team_topics + 1, self.team_topics_max, "topics of the team"),
        )
        found = [f"{value:,} {what}: the policy allows {most:,}." for value, most, what in bounds if value > most]
        if disk_use(wish).kept_bytes > self.kept_gib_max * GIB:
            kept = disk_use(wish).kept_bytes / GIB
            found.append(f"{kept:,.1f} GiB kept: the policy allows {self.kept_gib_max:,} GiB.")
        if wish.kafka_cluster is not None:
            found.append(f"Its home is the Kafka cluster {wish.kafka_cluster}.")
        if wish.group_names:
            found.append(f"It asks for the broker groups {', '.join(wish.group_names)}.")
        return found

    def reasons_of_consumption(self, wish: ConsumptionWish, team_groups: int, others: Sequence[str]) -> list[str]:
        """As `reasons`, of a request for consumption.

        Args:
            others: topics of the wish that the team does not own: its messages would leave the team that has them.
        """
        if not self.is_on:
            return [SWITCHED_OFF]
        bounds = (
            (wish.dead_letter_hours, self.retention_hours_max, "hours of retention for dead letters"),
            (team_groups + 1, self.team_groups_max, "groups of the team"),
        )
        found = [f"{value:,} {what}: the policy allows {most:,}." for value, most, what in bounds if value > most]
        return found + [f"Topic {each} does not belong to the team." for each in others]

    def to_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> "ApprovalPolicy":
        """The policy as stored; bounds of another version are left out."""
        return cls(**{each.name: value[each.name] for each in fields(cls) if each.name in value})

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> "ApprovalPolicy":
        """Raises InvalidForm with the faults of all fields."""
        faults, found = {}, {}
        for each in fields(cls)[1:]:
            text = form.get(each.name, "").strip().replace(",", "")
            if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= NUMBER_MAX:
                found[each.name] = int(text)
            else:
                faults[each.name] = f"Use a whole number from 1 to {NUMBER_MAX:,}."
        if faults:
            raise InvalidForm(faults)
        return cls(form.get("is_on") == "on", **found)
