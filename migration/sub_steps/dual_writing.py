"""Sub-steps of the recipe whose proxies write to both sides."""

from collections.abc import Mapping
from itertools import zip_longest

from migration.facts import IN_KAFKA, Facts, Rules
from migration.recipes.course import PlanStep
from migration.states import Answer, Do, PlanState, Refuse, Wait
from migration.sub_steps.sub_step import FENCED, SHOWN_MAX, SubStep, leaving, shown

JOURNALS, DIVERGENCE, DOUBTS, COUNTS = "journals", "divergence", "doubts", "counts"
GATES = (JOURNALS, DIVERGENCE, DOUBTS, COUNTS)
"""Gates that an operator may accept: a proxy without a journal, or a journal without its proxy; at `abort` only, messages
that wait in journals; what journals cannot repair; different numbers of messages on both sides."""
PAIRED_MS_MAX = 20_000
"""After it, a process that has not applied the secondary is taken for cut off. Bridges end their copies meanwhile."""


def _one_writer(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if not rules.is_order_strict or facts.producers <= 1:
        return None
    return Refuse(
        f"{facts.producers:,} producer proxies write: the order of one key's messages may differ between the sides: "
        "use order: per_proxy in the plan if that is right, or the recipe mirror"
    )


def _journals(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if not facts.unjournaled or JOURNALS in rules.accepted or _is_abort_of_copies(state, facts):
        return None
    more = f" (and {len(facts.unjournaled) - 1:,} more)" if len(facts.unjournaled) > 1 else ""
    return Refuse(facts.unjournaled[0] + more)


def _divergence(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if _is_abort_of_copies(state, facts):
        return None
    if _is_divergence_accepted(state, rules):
        return None
    if facts.doubts and DOUBTS not in rules.accepted and state.course != "verify":  # its comparison settles them
        return Refuse(f"{'; '.join(facts.doubts[:SHOWN_MAX])}: compare both sides, or use --accept {DOUBTS}")
    if not facts.waiting:
        return None
    total = sum(each.messages for each in facts.waiting)
    worst = max(facts.waiting, key=lambda each: each.messages)
    first = f", the first of them {worst.ids[0][1]}" if worst.ids else ""
    return Wait(
        f"{total:,} messages are on one side only; {worst.messages:,} of {worst.topic} wait in the journal of "
        f"{worst.journal}{first}"
    )


def _is_abort_of_copies(state: PlanState, facts: Facts) -> bool:
    """Whether a plan is given up before proxies have written to both sides."""
    return state.course == "abort" and not leaving(state, facts)


def _is_divergence_accepted(state: PlanState, rules: Rules) -> bool:
    """A plan that goes on must not: an entry of a journal would be repaired in the wrong direction."""
    return state.course == "abort" and DIVERGENCE in rules.accepted


def _copied(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if not facts.uncopied or _is_divergence_accepted(state, rules):
        return None
    return Wait(f"messages of before the fence are on one side only at {shown(facts.uncopied)}")


def _counts(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if COUNTS in rules.accepted:
        return None
    for name, each in leaving(state, facts).items():
        if each.shape:
            return Refuse(f"{name}: {each.shape}")
        if not each.written:
            return Wait(f"the ends of {name} are not known")
        for queue, (kafka, engine) in enumerate(each.written):
            if kafka != engine:
                return Refuse(
                    f"{name} queue {queue}: since the last change of its sides Kafka has got {kafka:,} records and the "
                    f"engine {engine:,}: a writer bypasses the proxies, or a message is doubled on one side: compare "
                    f"them, or use --accept {COUNTS}"
                )
    return None


def _pair(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(leaving(state, facts))
    return Do("pair", wanted) if wanted else None


def _paired_everywhere(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    copying = [name for name, each in facts.topics.items() if each.secondary and each.is_being_copied]
    if not facts.late and not copying:
        return None
    sentence = (
        f"the secondary is not applied yet by {shown(facts.late)}" if facts.late
        else f"a bridge still copies {shown(copying)} from Kafka"
    )  # fmt: skip
    is_fenced = any(each.fence for each in facts.topics.values())
    return Refuse(sentence) if is_fenced and facts.waited_ms > PAIRED_MS_MAX else Wait(sentence)


def _rebase(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if _is_divergence_accepted(state, rules) or facts.unjournaled:
        return None  # the copy goes on from where it was: it repeats messages, and misses none
    wanted = tuple(
        name for name, each in leaving(state, facts).items()
        if any(at < end for at, end in zip_longest(each.copy_nexts, state.ends.get(name, ()), fillvalue=0))
    )  # fmt: skip
    return Do("rebase", wanted) if wanted else None


def _unpair(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(leaving(state, facts))
    return Do("unpair", wanted) if wanted else None


def _unpair_fenced(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    """A pairing that is given up: while its fence is there, nothing was sent to both sides."""
    is_pairing = state.quits == "verify" or (state.course == "abort" and state.step is PlanStep.COPYING)
    if not is_pairing:
        return None
    topics = facts.topics.items()
    wanted = tuple(name for name, each in topics if each.fence and each.secondary and each.home == IN_KAFKA)
    return Do("unpair", wanted) if wanted else None


SUB_STEPS: Mapping[str, SubStep] = {
    "one_writer": SubStep(_one_writer, "checks that one producer proxy writes, or that the plan says per_proxy", "at once"),
    "journals": SubStep(
        _journals, "checks that every producer proxy has a repair journal, and every journal its proxy", "at once"
    ),
    "divergence": SubStep(_divergence, "waits until no journal holds a message of the topics", "seconds"),
    "copied": SubStep(
        _copied, "waits until both sides have everything that was sent before the fence", FENCED, is_guarded=True
    ),
    "counts": SubStep(
        _counts, "checks that both sides have got equally many messages per queue", "at once", is_guarded=True,
        asks_positions=True,
    ),
    "pair": SubStep(
        _pair, "has proxies write to the engine, too, and records the place", "at once", is_guarded=True
    ),
    "paired_everywhere": SubStep(
        _paired_everywhere, "waits until every process has applied it, and the copies have ended",
        f"up to {PAIRED_MS_MAX // 1000} s", asks_claims=True,
    ),
    "rebase": SubStep(
        _rebase, "sets the copies into the engine behind what both sides have", "at once", is_guarded=True,
        asks_positions=True,
    ),
    "unpair": SubStep(_unpair, "has proxies write to the home alone, and removes the fence", "at once", is_guarded=True),
    "unpair_fenced": SubStep(_unpair_fenced, "takes a secondary back that was not in use yet", "at once"),
}  # fmt: skip
