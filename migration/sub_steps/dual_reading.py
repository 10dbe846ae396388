"""Sub-steps of the recipe double read: each message is on one side, and the plan's groups read both."""

from collections.abc import Callable, Iterator, Mapping

from migration.facts import IN_KAFKA, Facts, GroupFacts, Rules
from migration.kafka_groups import GROUPS_MAX, UnnamedGroups
from migration.states import Answer, Do, PlanState, Refuse, Wait
from migration.sub_steps.configuring import applied
from migration.sub_steps.copying import LAG
from migration.sub_steps.sub_step import SHOWN_MAX, Decider, SubStep, missing

UNREAD, GROUPS = "unread", "groups"
"""Gates that an operator may accept: messages in hidden topics that a group has not acknowledged are given up; groups that
read in Kafka and are not in the plan get nothing after the cut."""


def _all_groups(facts: Facts) -> Iterator[tuple[str, GroupFacts]]:
    return ((name, each) for name, topic in facts.topics.items() for each in topic.groups)


def _lag(facts: Facts, rules: Rules) -> str:
    """Why the groups are not near enough to Kafka's end; empty: they are."""
    for topic, group in _all_groups(facts):
        if group.kafka_lag is None:
            return f"how far group {group.name} is in {topic} is not known"
        if group.kafka_lag > rules.lag_messages:
            return (
                f"group {group.name} has {group.kafka_lag:,} records of {topic} to read in Kafka, at most "
                f"{rules.lag_messages:,} may be left"
            )
    return ""


def _lost(facts: Facts) -> Answer:
    found = next((group.lost for _, group in _all_groups(facts) if group.lost), "")
    return Refuse(found) if found else None


def _near(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if lost := _lost(facts):
        return lost
    found = "" if LAG in rules.accepted else _lag(facts, rules)
    return Wait(found) if found else None


def _near_gate(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if lost := _lost(facts):
        return lost
    found = "" if LAG in rules.accepted else _lag(facts, rules)
    return Refuse(found) if found else None


def _groups_named(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    """A group that nobody has named reads on in Kafka, where nothing comes any more: nobody else would tell."""
    found = facts.unnamed or UnnamedGroups()
    if GROUPS in rules.accepted:
        return None
    if found.groups:
        told = "; ".join(each.sentence for each in found.groups[:SHOWN_MAX])
        more = f"; and {len(found.groups) - SHOWN_MAX:,} more" if len(found.groups) > SHOWN_MAX else ""
        return Refuse(
            f"{told}{more}: the plan does not name it, so it gets nothing of what is sent after the cut: delete a group that is "
            f"not used any more (kafka-consumer-groups.sh --delete --group {found.groups[0].name}), name the others in the "
            f"plan's `groups` (abort, and plan again), or use --accept {GROUPS}"
        )
    if found.unasked:
        return Refuse(
            f"Kafka has {found.unasked:,} more groups than the {GROUPS_MAX:,} that are asked: which of them read the topics is "
            f"not known: use --accept {GROUPS}"
        )
    return None


def _read_back(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    """What groups with an order have not acknowledged here would be overtaken by what is sent to Kafka."""
    for topic, group in _all_groups(facts):
        if group.has_order and group.unread:
            return Wait(f"group {group.name} has {group.unread:,} messages of {topic} to acknowledge in the engine")
    return None


def _kafka_drained(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    for topic, group in _all_groups(facts):
        if group.lost:
            return Wait(group.lost)
        if group.kafka_lag is None or group.kafka_lag:
            return Wait(f"group {group.name} has {group.kafka_lag or 0:,} records of {topic} to read in Kafka")
        if group.waiting:
            return Wait(f"group {group.name} has {group.waiting:,} messages of {topic} from Kafka to acknowledge")
        if group.has_order and not group.is_drained:
            return Wait(
                f"group {group.name} does not read the engine's side of {topic} yet: is a Kafka bridge running?"
            )
    return None


def _acknowledged(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    for topic, group in _all_groups(facts):
        if group.has_entry and group.waiting and UNREAD not in rules.accepted:
            return Wait(
                f"group {group.name} has {group.waiting:,} messages of {topic} from Kafka to acknowledge: have its "
                f"consumers go on, or use --accept {UNREAD}"
            )
    return None


def _work(work: str, is_wanted: Callable[[GroupFacts], bool], home: str = "") -> Decider:
    """The decision to do the work for the topics with a group for which it is not done, of this home only."""

    def decide(state: PlanState, facts: Facts, rules: Rules) -> Answer:
        wanted = [
            name
            for name, topic in facts.topics.items()
            if home in ("", topic.home) and any(map(is_wanted, topic.groups))
        ]
        return Do(work, tuple(wanted)) if wanted else None

    return decide


def _copy_start(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = [
        name
        for name, topic in facts.topics.items()
        if topic.home == IN_KAFKA and not topic.has_copy_start and any(each.has_entry for each in topic.groups)
    ]
    return Do("copy_start", tuple(wanted)) if wanted else None


SUB_STEPS: Mapping[str, SubStep] = {
    "groups_named": SubStep(
        _groups_named, "checks that every group that reads the topics in Kafka is in the plan", "seconds", asks_groups=True
    ),
    "dual_reads": SubStep(
        missing("dual_reads", lambda each: all(group.has_entry for group in each.groups)),
        "has the Kafka bridges join the plan's groups, and their pulls read both sides", "at once",
    ),
    # A bridge sees the kinds of the configuration one by one: one that saw the topics, or the end of the dual reads, first
    # would copy the topics for all groups from their first records on, and the groups would get everything twice.
    "dual_reads_applied": SubStep(applied, "waits until every process has applied the dual reads", "seconds"),
    "copy_start": SubStep(
        _copy_start, "has the copy for all groups begin at the present ends in Kafka, where topics stay there", "at once"
    ),
    "copy_start_applied": SubStep(applied, "waits until every process has applied it", "seconds"),
    "groups_near": SubStep(
        _near, "waits until every group has at most {lag:,} records to read in Kafka", "as long as the groups take",
        asks_positions=True,
    ),
    "groups_gate": SubStep(
        _near_gate, "checks that every group has at most {lag:,} records to read in Kafka", "at once", asks_positions=True
    ),
    "readable": SubStep(
        lambda state, facts, rules: None, "reads the last records in Kafka, to know that the bridges may read them", "seconds",
        asks_positions=True, asks_tails=True,
    ),
    "read_back": SubStep(
        _read_back, "waits until groups with an order have acknowledged what the engine has", "seconds", is_guarded=True,
        asks_positions=True,
    ),
    "rearm": SubStep(
        _work("rearm", lambda each: each.is_drained, IN_KAFKA), "has groups with an order read Kafka's side alone again",
        "at once",
    ),
    "kafka_drained": SubStep(
        _kafka_drained, "waits until every group has read and acknowledged Kafka's side", "as long as the groups take",
        asks_positions=True,
    ),
    "leave": SubStep(
        _work("leave", lambda each: each.has_entry and not each.is_ending), "has the Kafka bridges leave the groups",
        "at once",
    ),
    "acknowledged": SubStep(
        _acknowledged, "waits until what was copied for the groups is acknowledged", "as long as the groups take",
        asks_positions=True,
    ),
    "no_dual_reads": SubStep(
        _work("no_dual_reads", lambda each: each.has_entry), "ends the dual reads and removes their hidden topics",
        "at once",
    ),
}  # fmt: skip
