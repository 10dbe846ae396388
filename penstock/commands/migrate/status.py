"""`penstock migrate status`."""

from typing import Any

import click

from common.admin.administrator import Administrator
from common.utc import utc
from migration.describe import asks_groups, groups_told, waiting_operator, waits_for
from migration.entries import PlanEntry, PlanStore
from migration.facts import Facts, GroupFacts, SendErrors, TopicFacts, WaitingCopies
from migration.plan import DOUBLE_WRITE
from migration.reconcile.plan_check import DIFFERENCES
from migration.reconcile.plan_check import KIND as CHECK_KIND
from migration.run import CourseRun
from migration.sub_steps.error_rate import rate_of, told
from migration.sub_steps.sub_step import SHOWN_MAX
from penstock.commands.migrate.work import ago, behind_in, deployment_of, total_behind
from penstock.terminal.exits import Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows

PLAN_COLUMNS = ("plan", "step", "course", "sub_step", "since", "topics", "operator")
DUAL_COLUMNS = (
    "topic", "home", "secondary", "fenced", "copied", "behind", "kafka_end", "engine_end", "kafka_got", "engine_got",
    "notes",
)  # fmt: skip
DIVERGENCE_COLUMNS = ("topic", "queue", "waiting", "first_ids", "journal")
TOPIC_COLUMNS = ("topic", "home", "fenced", "kafka_end", "copied", "behind", "open_transactions", "behind_out", "notes")


@click.command(cls=Command, name="status")
@click.argument("plan", required=False)
@click.option("--history", is_flag=True, help="Show who did what and when, in place of the topics.")
@output_option
@instance_options("engine")
def command(instance: Instance, plan: str | None, history: bool, output: str) -> None:
    """Show where PLAN is, what it waits for and since when; without PLAN, all plans.

    Positions are asked from Kafka and the engine each time. For the recipe double_write it lists what one side lacks: the
    first ids per topic and queue, and their number per journal.
    """
    with administration(instance) as admin:
        plans = PlanStore(admin.store, admin.clock, admin.who)
        if plan is None:
            show_rows([_plan_row(each) for each in plans.all()], PLAN_COLUMNS, output)
            return
        entry = plans.read(plan)
        if history:
            rows = [{"at": utc(each.at_ms), "who": each.who, "what": each.what} for each in entry.history]
            show_rows(rows, ("at", "who", "what"), output)
            return
        _show(instance, admin, plans, entry, output)


def _plan_row(entry: PlanEntry) -> dict[str, Any]:
    state = entry.state
    return {
        "plan": entry.plan.name, "digest": entry.plan.digest, "recipe": entry.plan.recipe,
        "cluster": entry.plan.cluster, "step": str(state.step), "course": state.course, "sub_step": state.sub_step,
        "since": f"{utc(entry.since_ms)} ({ago(entry.since_ms)})", "topics": len(entry.plan.topics),
        "operator": entry.operator, "given_up": state.reason,
    }  # fmt: skip


def _show(instance: Instance, admin: Administrator, plans: PlanStore, entry: PlanEntry, output: str) -> None:
    try:
        with deployment_of(instance, admin, entry.plan, lambda sentence: None) as deployment:
            facts = deployment.facts(
                with_positions=True, with_errors=True, with_groups=asks_groups(entry), with_tails=True
            )  # fmt: skip
    except CommandError as fault:
        show_one(_unanswered_row(admin, entry, fault), output)
        raise
    rules = CourseRun(deployment, plans, entry, admin.clock, frozenset(), lambda seconds: None).rules
    row = _plan_row(entry)
    row["waits_for"] = waits_for(entry.state, facts, rules, _is_at_work(admin, entry.plan.name))
    row["behind"] = total_behind(facts)
    row["failed_sends"] = failed_sends(facts.errors)
    row["compared"] = _compared(admin, entry.plan.name)
    if groups := groups_told(entry.plan, facts):
        row["groups"] = groups
    topics = topic_rows(facts)
    is_dual = entry.plan.recipe == DOUBLE_WRITE
    if is_dual:
        row["one_side_only"] = sum(each.messages for each in facts.waiting)
        row["notes"] = [*facts.unjournaled, *facts.doubts]
    if is_for_scripts(output):
        show_one({**row, "topic_rows": topics, "divergence": [each._asdict() for each in facts.waiting]}, output)
        return
    show_one({**row, "notes": "; ".join(row["notes"])} if is_dual else row, output)
    click.echo()
    show_rows(topics, DUAL_COLUMNS if is_dual else TOPIC_COLUMNS, output)
    if rows := [each for waiting in facts.waiting for each in divergence_rows(waiting)]:
        click.echo()
        show_rows(rows, DIVERGENCE_COLUMNS, output)


def _unanswered_row(admin: Administrator, entry: PlanEntry, fault: CommandError) -> dict[str, Any]:
    """Where the plan is while Kafka or an engine does not tell its positions."""
    state = entry.state
    then = f"{state.sub_step} of {state.course}" if state.course else waiting_operator(state)
    return {
        **_plan_row(entry),
        "waits_for": f"positions, which are not known: {fault}; then for {then}",
        "compared": _compared(admin, entry.plan.name),
    }


def divergence_rows(waiting: WaitingCopies) -> list[dict[str, Any]]:
    """One row per queue with ids; the number is the topic's in this journal."""
    queues = dict.fromkeys(queue for queue, _ in waiting.ids) or {None: None}
    return [
        {
            "topic": waiting.topic, "queue": queue, "waiting": waiting.messages, "journal": waiting.journal,
            "first_ids": ", ".join(shown for at, shown in waiting.ids if at == queue),
        }
        for queue in queues
    ]  # fmt: skip


def failed_sends(errors: SendErrors) -> str:
    """Failed sends of the last minutes, the worst topic first."""
    failing = sorted((each for each in errors.topics.items() if each[1].failed), key=lambda each: -rate_of(each[1]))
    found = [told(name, each) for name, each in failing[:SHOWN_MAX]]
    if not found:
        found = [f"none of {sum(each.stored for each in errors.topics.values()):,} in the last 5 minutes"]
    return "; ".join([*found, *(f"not known of {each}" for each in errors.silent)])


def _compared(admin: Administrator, plan: str) -> str:
    """When `verify` has compared last, and what it found."""
    found = admin.store.get(CHECK_KIND, plan)
    if found is None:
        return "never"
    differ = sum(sum(topic[name] for name in DIFFERENCES) for topic in found.value["topics"])
    return f"{utc(found.value['at_ms'])} ({ago(found.value['at_ms'])}): {differ:,} ids differ"


def _is_at_work(admin: Administrator, plan: str) -> bool:
    """Whether a process has claimed the plan."""
    if not admin.store.claim(f"migration/{plan}"):
        return True
    admin.store.release(f"migration/{plan}")
    return False


def topic_rows(facts: Facts) -> list[dict[str, Any]]:
    """A row per topic of the plan."""
    return [_topic_row(name, each) for name, each in facts.topics.items()]


def _topic_row(name: str, topic: TopicFacts) -> dict[str, Any]:
    late = [f"records after the cut in queue {queue}" for queue in topic.late_queues]
    return {
        "topic": name, "home": topic.home or "none", "secondary": topic.secondary or None,
        "fenced": "yes" if topic.fence else "no",
        "kafka_end": sum(topic.kafka_ends), "copied": sum(topic.copied_in) if topic.copied_in else None,
        "behind": behind_in(topic),
        "engine_end": sum(topic.engine_ends) if topic.engine_ends else None,
        "kafka_got": sum(kafka for kafka, _ in topic.written) if topic.written else None,
        "engine_got": sum(engine for _, engine in topic.written) if topic.written else None,
        "open_transactions": sum(end - first for _, first, end in topic.open_transactions), "behind_out": topic.behind_out,
        "notes": [
            *topic.losses_of_home, *filter(None, [topic.tail, topic.shape]), *topic.faults, *late,
            *(_group_sentence(each, topic) for each in topic.groups),
        ],
    }  # fmt: skip


def _group_sentence(group: GroupFacts, topic: TopicFacts) -> str:
    """How far a group that reads both sides is, on each of them."""
    sentence = f"group {group.name}: {group.kafka_lag or 0:,} to read in Kafka, {group.waiting or 0:,} from there to acknowledge"
    if not group.has_order or group.is_drained or not topic.cut_ms:
        return sentence + f", {group.unread or 0:,} of the engine's own to acknowledge"
    return sentence + f"; {group.unread or 0:,} wait in the engine until then, since {utc(topic.cut_ms)}"
