"""Plan files: the topics of one move, its recipe and its bounds. YAML, read strictly.

    name: shop
    recipe: mirror
    cluster: main
    topics:
      - orders
      - {name: pay, queues: 8}
    gates: {lag_messages: 1000}
    limits: {fence_s: 60, soak_hours: 24}

A plan is stored as it was read. Its digest names the text, so that an operator sees which one is at work.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import yaml

from common.config.checks import Checks
from common.config.definitions import FENCE_MS_MAX, QUEUES_MAX
from common.config.errors import InvalidDefinition
from common.dead_letters import PREFIX as DEAD_LETTER_PREFIX
from common.names import NAME_RULE, is_name
from common.quoting import listed, quoted, thing
from common.strict_yaml import check_events

MIRROR, DOUBLE_WRITE, DOUBLE_READ = "mirror", "double_write", "double_read"
RECIPES = (MIRROR, DOUBLE_WRITE, DOUBLE_READ)
ORDERS = ("strict", "per_proxy")
RESERVED_PREFIXES = (DEAD_LETTER_PREFIX, "_kafka.", "__")
"""Of names that are legal in Kafka and taken by one of the two sides for topics of its own."""

TEXT_BYTES_MAX = 40 << 10
STORED_BYTES_MAX = 42 << 10
"""Of a text as JSON, as its entry has it beside the plan's state: characters beyond ASCII take 6 to 12 bytes there."""
TOPICS_MAX = 1_000
"""With names of 36 characters, one a line, they fill the text."""
GROUPS_MAX = 1_000
QUEUES_OF_PLAN_MAX = 2_000
"""Of one topic: the record of a cut names every queue, and has to fit into the topic's entry."""
DIGEST_CHARS = 16


@dataclass(frozen=True)
class PlannedTopic:
    """A topic of a plan. It has one name, in Kafka as in the engine.

    Attributes:
        queues: number of partitions that the operator expects; None: as many as Kafka has.
    """

    name: str
    queues: int | None = None


@dataclass(frozen=True)
class PlanGates:
    """Bounds that must hold before a fence.

    Attributes:
        lag_messages: records that the copy may still lack. More makes the fence longer, less may never be reached.
        error_rate: share of the sends to one topic that may have failed in the last minutes; 1: no bound.
    """

    lag_messages: int = 1_000
    error_rate: float = 0.01


@dataclass(frozen=True)
class PlanLimits:
    """
    Attributes:
        fence_s: after it, a proxy lifts a fence by itself. More survives a slower cut, and callers wait longer.
        soak_hours: time after the cut before which the way back is not given up.
    """

    fence_s: int = 60
    soak_hours: int = 24


@dataclass(frozen=True)
class MigrationPlan:
    """A plan, checked by itself; `migration.fit` checks it against the cluster and the configuration.

    Attributes:
        text: the file as it was read.
        groups: Kafka groups whose positions are of interest.
        order: what double write may do to the order of a key's messages; of that recipe only.
    """

    name: str
    recipe: str
    cluster: str
    topics: tuple[PlannedTopic, ...]
    groups: tuple[str, ...]
    order: str
    gates: PlanGates
    limits: PlanLimits
    text: str

    @property
    def digest(self) -> str:
        """The first hex digits of the text's SHA-256."""
        return sha256(self.text.encode()).hexdigest()[:DIGEST_CHARS]

    @property
    def topic_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.topics)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice: the loader's own rule is to take the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.MarkedYAMLError(problem=f"line {line}: key {quoted(key)} is given twice: use it once")
            seen.append(key)
        return super().construct_mapping(node, deep)


def parse_plan(text: str, subject: str, is_stored: bool = False) -> MigrationPlan:
    """Read a plan.

    Args:
        subject: the file, for the sentence.
        is_stored: it was taken once, maybe by an older version, which let numbers of other bases and aliases pass.
    Raises:
        InvalidDefinition: with all faults of the plan, each with its field and rule.
    """
    if len(text.encode()) > TEXT_BYTES_MAX:
        rule = f"use at most {TEXT_BYTES_MAX:,} bytes, or several plans"
        raise InvalidDefinition(subject, [f"it has {len(text.encode()):,} bytes: {rule}"])
    try:
        if not is_stored:
            check_events(text)
        value = yaml.load(text, _StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        raise InvalidDefinition(subject, [f"not YAML: {_told(fault)}"]) from fault
    if not isinstance(value, Mapping):
        raise InvalidDefinition(subject, ["not a mapping: begin with name, recipe, cluster and topics"])
    name = value.get("name")
    checks = Checks("plan", name, {str(key): each for key, each in value.items()})
    checks.take("name", None)
    if not isinstance(name, str) or not is_name(name):
        checks.fault("name", f"{quoted(name)} is not a name: {_name_rule(name)}")
    plan = _checked(str(name), checks, text)
    if checks.faults:
        raise InvalidDefinition(thing("plan", name) if isinstance(name, str) else subject, checks.faults)
    return plan


def _name_rule(name: Any) -> str:
    """With a hint for what YAML takes for something else than a text."""
    if isinstance(name, str) or name is None or isinstance(name, list | Mapping):
        return NAME_RULE
    return f"{NAME_RULE}; quote a name such as 'no', 'on', '1234' or '2024-01-01', which YAML reads as something else"


def _told(fault: Exception) -> str:
    """A parser's error as one line, with the place."""
    mark = getattr(fault, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    return place + str(getattr(fault, "problem", None) or fault or type(fault).__name__)


def _checked(name: str, checks: Checks, text: str) -> MigrationPlan:
    recipe = checks.choice("recipe", "", RECIPES)
    order = checks.choice("order", ORDERS[0], ORDERS)
    if order != ORDERS[0] and recipe != DOUBLE_WRITE:
        checks.fault("order", f"{order} is of the recipe {DOUBLE_WRITE}: leave it out")
    cluster = checks.take("cluster", None)
    if not isinstance(cluster, str) or not is_name(cluster):
        checks.fault("cluster", f"{quoted(cluster)} is not a name: use that of a cluster of `penstock kafka list`")
    plan = MigrationPlan(
        name, recipe, str(cluster), _topics(checks), checks.names("groups", GROUPS_MAX), order,
        _gates(checks),
        PlanLimits(**_numbers(
            checks, "limits",
            fence_s=(PlanLimits.fence_s, 5, FENCE_MS_MAX // 1000), soak_hours=(PlanLimits.soak_hours, 0, 10_000),
        )), text,
    )  # fmt: skip
    if recipe == DOUBLE_READ and not plan.groups:
        checks.fault("groups", f"it is empty: {DOUBLE_READ} needs the groups that shall read both sides")
    _no_others(checks)
    return plan


def _topics(checks: Checks) -> tuple[PlannedTopic, ...]:
    value = checks.take("topics", None)
    if not isinstance(value, list) or not 1 <= len(value) <= TOPICS_MAX:
        checks.fault("topics", f"use a list of 1 to {TOPICS_MAX:,} topics")
        return ()
    found = [_topic(checks, f"topics[{number}]", each) for number, each in enumerate(value)]
    names = [each.name for each in found]
    for name in sorted({each for each in names if names.count(each) > 1}):
        checks.fault("topics", f"{quoted(name)} is listed twice: list each topic once")
    return tuple(found)


def _topic(checks: Checks, field: str, value: Any) -> PlannedTopic:
    given = value if isinstance(value, Mapping) else {"name": value}
    name = given.get("name")
    if not isinstance(name, str) or not is_name(name):
        checks.fault(f"{field}.name", f"{quoted(name)} is not a name: {_name_rule(name)}")
    elif prefix := next((each for each in RESERVED_PREFIXES if name.startswith(each)), None):
        checks.fault(
            f"{field}.name", f"{quoted(name)}: names that begin with {prefix} are reserved: it cannot be moved"
        )
    inner = checks.inside(field, {str(key): each for key, each in given.items()})
    inner.take("name", None)
    queues = inner.integer("queues", 1, 1, min(QUEUES_MAX, QUEUES_OF_PLAN_MAX)) if "queues" in given else None
    _no_others(inner)
    return PlannedTopic(str(name), queues)


def _gates(checks: Checks) -> PlanGates:
    inner = _inside(checks, "gates", ("lag_messages", "error_rate"))
    lag = inner.integer("lag_messages", PlanGates.lag_messages, 0, 1_000_000)
    rate = inner.take("error_rate", PlanGates.error_rate)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        inner.fault("error_rate", f"{quoted(rate)} is not a share: use 0 to 1, such as 0.01 for 1 %")
        rate = PlanGates.error_rate
    _no_others(inner)
    return PlanGates(lag, float(rate))


def _numbers(checks: Checks, field: str, **bounds: tuple[int, int, int]) -> dict[str, int]:
    """The whole numbers of a mapping: by name their default, lowest and highest value."""
    inner = _inside(checks, field, tuple(bounds))
    found = {name: inner.integer(name, *each) for name, each in bounds.items()}
    _no_others(inner)
    return found


def _inside(checks: Checks, field: str, names: Sequence[str]) -> Checks:
    value = checks.take(field, {})
    if not isinstance(value, Mapping):
        checks.fault(field, f"it is not a mapping: use {listed(list(names))}")
        value = {}
    return checks.inside(field, {str(key): each for key, each in value.items()})


def _no_others(checks: Checks) -> None:
    for name in checks.rest():
        checks.fault(name, "there is no such field: leave it out")
