"""Names of one rehearsal: of its plan, the copies of topics and groups in Kafka, and its directory.

Everything that a rehearsal makes has the run in its name, so that it can be found and removed after a kill. Topics and
groups are numbered: with the names of the real ones the plan's text could be too large.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from kafka_bridge.copy_out.positions import position_group
from migration.kafka_groups import REHEARSALS
from migration.plan import ORDERS, MigrationPlan

PREFIX = REHEARSALS
RUN_RULE = "use the six hexadecimal digits that the rehearsal has printed"
_RUN = re.compile(r"[0-9a-f]{6}")


def is_run(text: str) -> bool:
    return _RUN.fullmatch(text) is not None


def rehearsal_name(run: str) -> str:
    """The name of the rehearsal's plan, and the prefix of all other names."""
    return PREFIX + run


def is_of(run: str, name: str) -> bool:
    """Whether a topic or a group of Kafka was made by that rehearsal."""
    plain = name.removeprefix(position_group(""))
    return plain == rehearsal_name(run) or plain.startswith(f"{rehearsal_name(run)}.")


@dataclass(frozen=True)
class RehearsalNames:
    """
    Attributes:
        topics, groups: of the plan, with the names of their copies.
    """

    run: str
    plan: MigrationPlan
    topics: Mapping[str, str] = field(init=False)
    groups: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        prefix = rehearsal_name(self.run)
        topics = {name: f"{prefix}.{number}" for number, name in enumerate(self.plan.topic_names, 1)}
        object.__setattr__(self, "topics", topics)
        object.__setattr__(
            self, "groups", {name: f"{prefix}.g{number}" for number, name in enumerate(self.plan.groups, 1)}
        )

    @property
    def name(self) -> str:
        return rehearsal_name(self.run)

    @property
    def readers(self) -> str:
        """The group of the synthetic consumers, where the plan names none."""
        return f"{self.name}.readers"

    def text(self) -> str:
        """The plan file of the rehearsal: the plan, of the copies, without a time of soaking."""
        plan = self.plan
        value = {
            "name": self.name, "recipe": plan.recipe, "cluster": plan.cluster, "topics": [*self.topics.values()],
            "gates": {"lag_messages": plan.gates.lag_messages, "error_rate": plan.gates.error_rate},
            "limits": {"fence_s": plan.limits.fence_s, "soak_hours": 0},
        }  # fmt: skip
        if plan.order != ORDERS[0]:
            value["order"] = plan.order
        if self.groups:
            value["groups"] = [*self.groups.values()]
        return yaml.safe_dump(value, sort_keys=False)
