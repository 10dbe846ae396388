"""Sub-steps of recipes whose copiers fill the other side."""

from collections.abc import Mapping

from migration.facts import Facts, Rules
from migration.states import Answer, PlanState, Refuse, Wait
from migration.sub_steps.fencing import growth
from migration.sub_steps.kafka_topics import SOURCE, open_transaction, standstill
from migration.sub_steps.sub_step import SHOWN_MAX, SubStep, leaving, shown

LAG = "lag"
"""Gate that an operator may accept: the copy's lag."""


def _shape(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    for name, each in facts.topics.items():
        if each.shape:
            told = f"{name}: {each.shape}"
            return Wait(told) if each.queues < each.partitions else Refuse(told)
    return None


def _caught_up(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if stands := standstill(facts.topics, facts, rules):
        return stands
    if (differing := _shape(state, facts, rules)) is not None:
        return differing
    if faults := _faults(facts, rules):
        return Refuse(faults)
    if LAG in rules.accepted or (waits := _lag(facts, rules)) is None:
        return None
    return Wait(waits)


def _lag(facts: Facts, rules: Rules) -> str | None:
    """Why the copy is not near enough; None: it is."""
    topics = {name: each for name, each in facts.topics.items() if not each.secondary}  # the others have no copy
    if unknown := [name for name, each in topics.items() if each.behind_in is None]:
        return f"the copy of {shown(unknown)} has not begun: is a Kafka bridge running?"
    total = sum(each.behind_in or 0 for each in topics.values())
    if total <= rules.lag_messages:
        return None
    worst = max(topics, key=lambda name: topics[name].behind_in or 0)
    at = topics[worst].behind_in
    return f"the copy lacks {total:,} records, at most {rules.lag_messages:,} may be missing; {worst} lacks {at:,}"


def _faults(facts: Facts, rules: Rules) -> str:
    found = [f"{name}: {fault}" for name, each in facts.topics.items() for fault in each.faults]
    if not found or SOURCE in rules.accepted:
        return ""
    more = f"; and {len(found) - SHOWN_MAX:,} more" if len(found) > SHOWN_MAX else ""
    return f"{'; '.join(found[:SHOWN_MAX])}{more}: compare both sides, then use --accept {SOURCE} to go on"


def _gates(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if (differing := _shape(state, facts, rules)) is not None:
        return differing
    if faults := _faults(facts, rules):
        return Refuse(faults)
    if state.is_leaving_engine:
        if beyond := _beyond(facts):
            return Refuse(beyond)
        total = sum(each.behind_out or 0 for each in leaving(state, facts).values())
        if total <= rules.lag_messages or LAG in rules.accepted:
            return None
        return Wait(f"the copy back lacks {total:,} messages, at most {rules.lag_messages:,} may be missing")
    waits = None if LAG in rules.accepted else _lag(facts, rules)
    return Refuse(waits) if waits else None


def _beyond(facts: Facts) -> str:
    """Why a copy back cannot be believed; empty: it can."""
    for name, each in facts.topics.items():
        if beyond := each.beyond_out:
            queue = beyond[0]
            return (
                f"the copy of {name} to Kafka is at {each.copied_out[queue]:,} in queue {queue}, which ends at "
                f"{each.engine_ends[queue]:,}: the engine has lost messages that Kafka has, or is another one"
            )
    return ""


def _drained(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if grown := growth(state, facts, rules):
        return Refuse(grown)
    if not state.is_leaving_engine and (sentence := open_transaction(leaving(state, facts))):
        return Refuse(sentence)  # it would be waited for as long as the fence lasts
    if isinstance(differing := _shape(state, facts, rules), Wait | Refuse):
        return Refuse(differing.sentence)
    if state.is_leaving_engine and (beyond := _beyond(facts)):
        return Refuse(beyond)
    for name, each in leaving(state, facts).items():
        copied = each.copied_out if state.is_leaving_engine else each.copied_in
        ends = state.ends.get(name, ())
        if not ends or len(copied) != len(ends):
            return Refuse(f"the position of the copy of {name} is not known")
        left = [max(0, end - at) for at, end in zip(copied, ends, strict=True)]
        if any(left):
            told = f"the copy of {name} lacks {sum(left):,} records, most of them in queue {left.index(max(left))}"
            if facts.waited_ms < rules.fence_ms // 2:  # before proxies end the fence: what they send then is no bypass
                return Wait(told)
            return Refuse(
                f"{told}, {facts.waited_ms // 1000} s behind the fence: the Kafka bridge's log says what stops it"
            )
    return None


def _tails(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    found = {name: each.tail for name, each in facts.topics.items() if each.tail}
    if not found or (state.course == "retire" and SOURCE in rules.accepted):
        return None
    hint = f": use --accept {SOURCE} to go on without it" if state.course == "retire" else ""
    more = f"; and {len(found) - 1:,} more topics" if len(found) > 1 else ""
    return Refuse(f"{next(iter(found.values()))}{more}{hint}")


def _drained_tails(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    return _drained(state, facts, rules) or _tails(state, facts, rules)


SUB_STEPS: Mapping[str, SubStep] = {
    "shape": SubStep(
        _shape, "checks that the topics have as many queues as partitions in Kafka", "seconds", asks_positions=True
    ),
    "caught_up": SubStep(
        _caught_up, "waits until the copies lack at most {lag:,} records", "as long as the copy takes", asks_positions=True
    ),
    "gates": SubStep(
        _gates, "checks the copies: at most {lag:,} records behind, one source per queue", "at once", asks_positions=True
    ),
    "tails": SubStep(
        _tails, "compares what was copied last on both sides", "at once", asks_positions=True, asks_tails=True
    ),
    "drained_tails": SubStep(
        _drained_tails, "compares it again", "at once", is_guarded=True, asks_positions=True, asks_tails=True
    ),
    "drained": SubStep(
        _drained, "waits until the other side has every record", "seconds", is_guarded=True, asks_positions=True
    ),
}  # fmt: skip
