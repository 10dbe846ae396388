"""The sub-steps of a plan's courses: each looks at the facts and answers what is missing. Pure, as migration.states."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from migration.facts import IN_ENGINE, IN_KAFKA, MISSING, Facts, Rules, TopicFacts
from migration.states import Answer, Decision, Do, PlanState, Refuse, Wait, Write, after, give_up

APPLIED_MS_MAX = 5_000
"""After it, a proxy that has not applied a fence is taken for cut off: the fence is lifted."""
QUIET_MS_MIN = 500
SHOWN_MAX = 5
LAG, SOAK, LATE, BYPASS = "lag", "soak", "late", "source"
GATES = (LAG, SOAK, LATE, BYPASS)
"""Gates that an operator may accept: the copy's lag, the time of the soak, records after the cut, a doubtful source."""

SubStep = Callable[[PlanState, Facts, Rules], Answer]


def decide(state: PlanState, facts: Facts, rules: Rules) -> Decision:
    """The next thing to do for the plan's present course; None: no course is at work."""
    if not state.course:
        return None
    if state.sub_step in GUARDED and (ended := _without_fence(state, facts)):
        return Write(give_up(state, ended))
    answer = SUB_STEPS[state.sub_step](state, facts, rules)
    if answer is None:
        return Write(after(state))
    if isinstance(answer, Refuse):
        return Write(give_up(state, answer.sentence))
    return answer


def leaving(state: PlanState, facts: Facts) -> dict[str, TopicFacts]:
    """The topics that the present course has still to switch."""
    if state.is_leaving_engine:
        return {name: each for name, each in facts.topics.items() if each.is_moved}
    return {name: each for name, each in facts.topics.items() if each.home == IN_KAFKA}


def left_ends(state: PlanState, topic: TopicFacts) -> tuple[int, ...]:
    """End offsets of the side that the topic leaves."""
    return topic.engine_ends if state.is_leaving_engine else topic.kafka_ends


def _without_fence(state: PlanState, facts: Facts) -> str:
    """Why the course cannot go on after its fence; empty: every topic that is still to switch has the fence."""
    gone = [name for name, each in leaving(state, facts).items() if each.fence != state.fence_id]
    return f"the fence of {shown(gone)} has ended before the cut: nothing was lost, begin again" if gone else ""


def _missing(work: str, is_there: Callable[[TopicFacts], bool]) -> SubStep:
    """A sub-step that does its work for the topics for which it is not done."""

    def sub_step(state: PlanState, facts: Facts, rules: Rules) -> Answer:
        wanted = tuple(name for name, each in facts.topics.items() if not is_there(each))
        return Do(work, wanted) if wanted else None

    return sub_step


def _mark(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    taken = [f"{name} (plan {each.mark})" for name, each in facts.topics.items() if each.mark not in ("", state.plan)]
    if taken:
        return Refuse(f"{shown(taken)}: a topic is in one plan at most: end the other plan first")
    free = tuple(name for name, each in facts.topics.items() if not each.mark)
    return Do("mark", free) if free else None


def _entries(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if moved := [name for name, each in facts.topics.items() if each.home == IN_ENGINE]:
        return Refuse(f"{shown(moved)}: the home is the engine already, or another cluster")
    missing = tuple(name for name, each in facts.topics.items() if each.home == MISSING)
    return Do("entries", missing) if missing else None


def _applied(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    return Wait(f"not applied yet by {shown(facts.late)}") if facts.late else None


def _caught_up(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if faults := _faults(facts, rules):
        return Refuse(faults)
    if LAG in rules.accepted or (waits := _lag(facts, rules)) is None:
        return None
    return Wait(waits)


def _lag(facts: Facts, rules: Rules) -> str | None:
    """Why the copy is not near enough; None: it is."""
    if unknown := [name for name, each in facts.topics.items() if each.behind_in is None]:
        return f"the copy of {shown(unknown)} has not begun: is a Kafka bridge running?"
    total = sum(each.behind_in or 0 for each in facts.topics.values())
    if total <= rules.lag_messages:
        return None
    worst = max(facts.topics, key=lambda name: facts.topics[name].behind_in or 0)
    at = facts.topics[worst].behind_in
    return f"the copy lacks {total:,} records, at most {rules.lag_messages:,} may be missing; {worst} lacks {at:,}"


def _faults(facts: Facts, rules: Rules) -> str:
    found = [f"{name}: {fault}" for name, each in facts.topics.items() for fault in each.faults]
    return "" if BYPASS in rules.accepted else "; ".join(found[:SHOWN_MAX])


def _gates(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if faults := _faults(facts, rules):
        return Refuse(faults)
    if state.is_leaving_engine:
        total = sum(each.behind_out or 0 for each in leaving(state, facts).values())
        if total <= rules.lag_messages or LAG in rules.accepted:
            return None
        return Wait(f"the copy back lacks {total:,} messages, at most {rules.lag_messages:,} may be missing")
    waits = None if LAG in rules.accepted else _lag(facts, rules)
    return Refuse(waits) if waits else None


def _fence(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(name for name, each in leaving(state, facts).items() if each.fence != state.fence_id)
    return Do("fence", wanted) if wanted else None


def _fenced_everywhere(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if not facts.late:
        return None
    if facts.waited_ms > APPLIED_MS_MAX:
        return Refuse(f"the fence was not applied within {APPLIED_MS_MAX // 1000} s by {shown(facts.late)}")
    return Wait(f"the fence is not applied yet by {shown(facts.late)}")


def _sent(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if facts.unsent:
        return Wait(f"sends of before the fence have no outcome yet at {shown(facts.unsent)}")
    ends = {name: left_ends(state, each) for name, each in leaving(state, facts).items()}
    if unknown := [name for name, each in ends.items() if not each]:
        return Wait(f"the end offsets of {shown(unknown)} are not known")
    return Write(replace(after(state), ends=ends))


def _growth(state: PlanState, facts: Facts) -> str:
    """The sentence about a writer that bypasses the proxies; empty: there is none."""
    for name, each in leaving(state, facts).items():
        for number, (end, before) in enumerate(zip(left_ends(state, each), state.ends.get(name, ()), strict=False)):
            if end > before:
                side = "queue" if state.is_leaving_engine else "partition"
                return (
                    f"{name} {side} {number} grew by {end - before:,} records behind the fence: "
                    "a writer bypasses the proxies: move it to the proxies first"
                )
    return ""


def _quiet(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if grown := _growth(state, facts):
        return Refuse(grown)
    return Wait(f"the ends have to be still for {QUIET_MS_MIN} ms") if facts.quiet_ms < QUIET_MS_MIN else None


def _drained(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if grown := _growth(state, facts):
        return Refuse(grown)
    for name, each in leaving(state, facts).items():
        copied = each.copied_out if state.is_leaving_engine else each.copied_in
        ends = state.ends.get(name, ())
        if not ends or len(copied) != len(ends):
            return Refuse(f"the position of the copy of {name} is not known")
        left = [max(0, end - at) for at, end in zip(copied, ends, strict=True)]
        if any(left):
            return Wait(
                f"the copy of {name} lacks {sum(left):,} records, most of them in queue {left.index(max(left))}"
            )
    return None


def _switch(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(leaving(state, facts))
    return Do("switch", wanted) if wanted else None


def _moved(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if any(each.is_moved for each in facts.topics.values()):
        return None
    return Refuse("no topic has its home in the engine: there is nothing to roll back")


def _not_moved(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if moved := [name for name, each in facts.topics.items() if each.is_moved]:
        return Refuse(f"{shown(moved)} moved to the engine: use rollback first")
    return None


def _soaked(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if facts.soaked_ms < rules.soak_ms and SOAK not in rules.accepted:
        left_h = (rules.soak_ms - facts.soaked_ms) / 3_600_000
        return Refuse(f"the plan's time of soaking ends in {left_h:,.1f} hours: wait, or use --accept {SOAK}")
    late = [f"{name} queue {queue}" for name, each in facts.topics.items() for queue in each.late_queues]
    if late and LATE not in rules.accepted:
        return Refuse(
            f"records came to Kafka after the cut, and were copied into {shown(late)}: a writer bypasses the proxies: "
            f"find it, or use --accept {LATE}"
        )
    return None


def _unmark(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    own = tuple(name for name, each in facts.topics.items() if each.mark == state.plan)
    return Do("unmark", own) if own else None


def shown(names: "list[str] | tuple[str, ...]") -> str:
    """The first few of the names."""
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


SUB_STEPS: Mapping[str, SubStep] = {
    "mark": _mark,
    "entries": _entries,
    "copy_in": _missing("copy_in", lambda each: each.has_copy_in),
    "applied": _applied,
    "caught_up": _caught_up,
    "gates": _gates,
    "fence": _fence,
    "fenced_everywhere": _fenced_everywhere,
    "sent": _sent,
    "quiet": _quiet,
    "drained": _drained,
    "switch": _switch,
    "followed": _applied,
    "copy_out": _missing("copy_out", lambda each: each.has_copy_out or not each.is_moved),
    "moved": _moved,
    "soaked": _soaked,
    "not_moved": _not_moved,
    "lift": _missing("lift", lambda each: not each.fence),
    "no_copy_in": _missing("no_copy_in", lambda each: not each.has_copy_in),
    "no_copy_out": _missing("no_copy_out", lambda each: not each.has_copy_out),
    "unmark": _unmark,
}
GUARDED = frozenset(("fenced_everywhere", "sent", "quiet", "drained", "switch"))
