"""`penstock migrate verify`."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from common.admin.administrator import Administrator
from common.clock import SystemClock
from common.config.placed_topics import stored_placed_topics
from common.kafka.base import KafkaProducer
from migration.describe import rows
from migration.entries import PlanEntry, PlanStore
from migration.errors import PlanConflict, PlanRefused
from migration.journals import journal_facts, note_compared, ranges_to_compare
from migration.plan import DOUBLE_READ, DOUBLE_WRITE
from migration.positions import EnginePositions
from migration.reconcile.plan_check import CheckedTopic, PlanCheck, divergence, finding_rows, topic_row
from migration.reconcile.repair import Repaired
from migration.reconcile.shared_reader import SharedReaders
from migration.reconcile.spans import TimeSpan
from migration.states import PlanStep, compared
from migration.sub_steps.copying import LAG
from migration.sub_steps.registry import GATES
from penstock.commands.migrate.work import (
    DRY_RUN_COLUMNS,
    OpenedKafka,
    course_of,
    opened_kafka,
    say,
)
from penstock.terminal import engines
from penstock.terminal.exits import CONFLICT, FAILED, UNAVAILABLE, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from penstock.terminal.times import TimeType

NEWEST_MS = 3_600_000
WATCH_S = 60
LINK_S = 60.0
FINDINGS_SHOWN_MAX = 20
COMPARED_STEPS = (PlanStep.COPYING, PlanStep.VERIFIED, PlanStep.CUT, PlanStep.SOAKING)
TOPIC_COLUMNS = ("topic", "kafka", "engine", "windows", "differing", "missing_in_engine", "missing_in_kafka",
                 "doubled_in_engine", "doubled_in_kafka", "altered", "superseded")  # fmt: skip
FINDING_COLUMNS = ("topic", "queue", "what", "id", "kafka_offsets", "engine_offsets")


@click.command(cls=Command, name="verify")
@click.argument("plan")
@click.option("--all", "everything", is_flag=True, help="Compare all messages (default: those of the last hour).")
@click.option("--from", "from_ms", type=TimeType(), metavar="TIME", help="Compare messages from TIME on, such as 3d.")
@click.option("--to", "to_ms", type=TimeType(), metavar="TIME", help="Compare messages before TIME (default: all).")
@click.option("--repair", is_flag=True, help="Write messages that one side lacks to it, under their ids.")
@click.option(
    "--take", type=click.Choice(["kafka", "engine"]), default=None,
    help="With --repair: also write this side's form of altered messages to the other side, as a later message.",
)  # fmt: skip
@click.option("--watch", is_flag=True, help=f"Compare again every {WATCH_S} s, until something differs or Ctrl-C.")
@click.option("--accept", "accepted", multiple=True, type=click.Choice(GATES),
              help="Go on although this gate is red; repeatable. The plan's history has your name.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what each sub-step will do, and do nothing.")
@output_option
@instance_options("engine")
def command(
    instance: Instance, plan: str, everything: bool, from_ms: int | None, to_ms: int | None, repair: bool,
    take: str | None, watch: bool, accepted: tuple[str, ...], dry_run: bool, output: str,
) -> None:  # fmt: skip
    """Wait until the copies of PLAN have caught up, and compare its topics in Kafka and in the engine by ids and hashes.

    Both sides may grow meanwhile. Ids that are missing, doubled or altered are listed, and the exit code is 1. When
    nothing differs, a plan that was copying is verified. It may be repeated, also after the cut. Undo: abort.

    The recipe double_write fences the topics once, for about a second, and has the proxies write to both sides from there
    on; it ends when no repair journal holds a message of the topics.
    """
    if everything and from_ms is not None:
        raise click.UsageError("--all and --from: use one of them")
    now_ms = SystemClock().now_ms()
    if from_ms is not None and from_ms >= min(now_ms, now_ms if to_ms is None else to_ms):
        raise click.UsageError("--from: use a time before --to and before now")
    if take and not repair:
        raise click.UsageError(f"--take {take}: it needs --repair")
    with administration(instance) as admin:
        plans = PlanStore(admin.store, admin.clock, admin.who)
        if dry_run:
            show_rows(rows(plans.read(plan).plan, "verify"), DRY_RUN_COLUMNS, output)
            return
        with plans.at_work(plan) as entry:
            entry, refusal = _brought_up(instance, admin, plans, entry, accepted, everything)
            if entry.plan.recipe == DOUBLE_READ:
                say("nothing is compared: each message is on one side only")
                show_one({"plan": plan, "digest": entry.plan.digest, "step": str(entry.state.step)}, output)
                return
            if repair:
                _check_journals(admin, entry)
            for number in itertools.count():
                start_ms = None if everything else (from_ms or SystemClock().now_ms() - NEWEST_MS)
                span = TimeSpan(start_ms, to_ms)
                awaits = LAG not in accepted and refusal is None
                entry = _check(
                    instance, admin, plans, entry, span, repair, take or "", output, is_again=number > 0, awaits=awaits,
                    is_current=refusal is None, is_chosen=from_ms is not None or to_ms is not None,
                )  # fmt: skip
                if refusal is not None:
                    raise refusal
                if not watch:
                    return
                time.sleep(WATCH_S)


def _brought_up(
    instance: Instance, admin: Administrator, plans: PlanStore, entry: PlanEntry, accepted: tuple[str, ...],
    everything: bool,
) -> tuple[PlanEntry, PlanRefused | None]:  # fmt: skip
    """Bring the copies up to date where the step asks for it. A refusal is raised; with `everything` it is returned.

    A copy that stands since Kafka was put back is such a one, and the comparison shows from where on it has to be made anew.
    """
    if entry.state.step in (PlanStep.CUT, PlanStep.SOAKING):
        return entry, None
    try:
        return course_of(instance, admin, plans, entry, "verify", accepted), None
    except PlanConflict:
        raise
    except PlanRefused as refusal:
        if not everything or entry.state.step not in COMPARED_STEPS:
            raise
        say(f"{refusal}: what was copied is compared all the same, and the plan is not verified")
        return plans.read(entry.plan.name), refusal


def _check_journals(admin: Administrator, entry: PlanEntry) -> None:
    """Raise CommandError while proxies have messages to repair: what is missing would be written twice."""
    if entry.plan.recipe == DOUBLE_WRITE:
        waiting = journal_facts(admin.store, entry.plan.topic_names, admin.store.version()).waiting
        if messages := sum(each.messages for each in waiting):
            told = f"{messages:,} messages wait in repair journals, whose proxies write them"
            raise CommandError(f"plan {entry.plan.name}: {told}: repair when they are empty", 4)


def _check(
    instance: Instance, admin: Administrator, plans: PlanStore, entry: PlanEntry, span: TimeSpan, repair: bool,
    take: str, output: str, is_again: bool, awaits: bool, is_current: bool, is_chosen: bool,
) -> PlanEntry:  # fmt: skip
    """Compare, repair, compare again; keep the result and show it. Raises CommandError where something differs.

    Args:
        is_again: the last comparison of this command found nothing: the plan's history has a line already.
        awaits: wait until the copies have what Kafka has.
        is_current: the copies were brought up to date before. is_chosen: the span is the operator's.
    """
    written = Repaired(0, 0, [])
    doubtful = ranges_to_compare(admin.store, entry.plan.topic_names, span.from_ms, span.to_ms)
    with opened_check(instance, admin, entry) as (check, kafka):
        found = check.compare(span, awaits_copies=awaits)
        if repair and divergence(found):
            written = _repair(check, found, kafka.producer, take)
            say(f"repaired: {written.engine:,} in the engine, {written.kafka:,} in Kafka; comparing again")
            found = check.compare(span)
        if is_chosen and not any(each.compared.kafka or each.compared.engine for each in found):
            sentence = (
                "no message is of the time from --from to --to: nothing was compared, and the plan stays as it is"
            )
            raise CommandError(f"plan {entry.plan.name}: {sentence}", CONFLICT)
        check.keep(found, span)
    left = divergence(found)
    if not (is_again and written == Repaired(0, 0, []) and not left):
        entry = _noted(plans, entry, found, written, left, is_current)
    _show(entry, found, written, output)
    if left or written.refused:
        told = f": {written.refused[0]}" if written.refused else ""
        raise CommandError(f"plan {entry.plan.name}: {left:,} ids differ{told}", FAILED)
    if ranges := note_compared(admin.store, doubtful):
        say(f"{ranges:,} ranges of repair journals are compared")
    return entry


@contextmanager
def opened_check(
    instance: Instance, admin: Administrator, entry: PlanEntry
) -> Iterator[tuple[PlanCheck, OpenedKafka]]:  # fmt: skip
    """The comparison of a plan. Errors of Kafka and of engines become the command's."""
    with (
        opened_kafka(admin, entry.plan.cluster) as kafka,
        engines.connected(instance, LINK_S) as links,
        closing(SharedReaders(kafka.reader)) as readers,
    ):
        try:
            yield (
                PlanCheck(
                    admin,
                    entry.plan,
                    kafka,
                    EnginePositions(links, stored_placed_topics(admin.store)),
                    readers.open,
                    say,
                ),
                kafka,
            )
        except engines.EngineAway:
            raise
        except OSError as error:  # exit code 1 would say that the sides differ
            raise CommandError(f"temporary files of the comparison: {error}", UNAVAILABLE) from error


def _repair(
    check: PlanCheck, found: list[CheckedTopic], open_producer: Callable[[], KafkaProducer], take: str
) -> Repaired:
    made: list[KafkaProducer] = []

    def producer() -> KafkaProducer:
        if not made:
            made.append(open_producer())
        return made[0]

    try:
        return check.repair(found, producer, take)
    finally:
        for each in made:
            each.close(1.0)


def _noted(
    plans: PlanStore, entry: PlanEntry, found: list[CheckedTopic], written: Repaired, left: int, is_current: bool
) -> PlanEntry:  # fmt: skip
    """Write the result into the plan's history, and the step that follows from it."""
    messages = sum(each.compared.kafka for each in found)
    what = f"compared {messages:,} messages of {len(found):,} topics: {left:,} ids differ"
    if written.engine or written.kafka:
        what += f"; repaired {written.engine:,} in the engine and {written.kafka:,} in Kafka"
    say(what)
    state = compared(entry.state, left, is_current)
    if state.step is not entry.state.step:
        say(f"now {state.step}")
    return plans.write(entry, state, what)


def _show(entry: PlanEntry, found: list[CheckedTopic], written: Repaired, output: str) -> None:
    topics = [topic_row(each.compared) for each in found]
    listed = [row for each in found for row in finding_rows(each.compared)]
    row: dict[str, Any] = {
        "plan": entry.plan.name, "digest": entry.plan.digest, "step": str(entry.state.step),
        "repaired_in_engine": written.engine, "repaired_in_kafka": written.kafka,
    }  # fmt: skip
    if is_for_scripts(output):
        show_one({**row, "topic_rows": topics, "findings": listed, "refused": written.refused}, output)
        return
    show_one(row, output)
    click.echo()
    show_rows(topics, TOPIC_COLUMNS, output)
    if listed:
        click.echo()
        show_rows(listed[:FINDINGS_SHOWN_MAX], FINDING_COLUMNS, output)
    if len(listed) > FINDINGS_SHOWN_MAX:
        click.echo(f"and {len(listed) - FINDINGS_SHOWN_MAX:,} more: use -o json")
