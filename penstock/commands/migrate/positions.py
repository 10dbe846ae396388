"""`penstock migrate positions`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from common.admin.administrator import Administrator
from common.config.definitions import TopicDefinition
from common.config.placed_topics import stored_placed_topics
from common.contract import Code
from common.kafka.codes import ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition
from common.names import NAME_RULE, is_name
from common.quoting import quoted
from common.utc import utc
from engine.client.admin import AdminError
from migration.entries import PlanStore
from migration.group_positions import GroupPositions, TranslatedPosition
from migration.journals import journal_facts
from migration.kafka_groups import WITHOUT_MEMBERS
from migration.paired_positions import PairedPositions
from migration.plan import DOUBLE_READ, DOUBLE_WRITE, MigrationPlan
from migration.positions import BOTH_HAVE, CopiedTopic, EngineLink, EnginePositions
from migration.returned_positions import EngineProgress, ReturnedPosition, ReturnedPositions
from migration.topic_sides import TopicSides
from penstock.commands.migrate.work import OpenedKafka, opened_kafka
from penstock.terminal import engines
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import CONFLICT, NOT_FOUND, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options, note
from penstock.terminal.output import output_option, show_rows

ENGINE, KAFKA = "engine", "kafka"
TO_ENGINE = ("topic", "queue", "kafka", "engine_now", "engine", "end", "again", "checked")
TO_KAFKA = ("topic", "queue", "engine", "kafka_now", "kafka", "end", "again", "checked")
LINK_S = 60.0
HAS_MEMBERS = (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, 68)
"""Kafka's errors of a commit for a group with members."""


class _Move(NamedTuple):
    """A group's move to another side.

    Attributes:
        rows: as they are shown; with the side's name the position that is to be set.
    """

    group: str
    plan: MigrationPlan
    kafka: OpenedKafka
    engine: EnginePositions
    rows: list[dict[str, Any]]


@click.command(cls=Command, name="positions")
@click.argument("plan")
@click.option("--group", "name", required=True, metavar="GROUP", help="Consumer group of Kafka, and of the engine.")
@click.option("--topic", metavar="TOPIC", help="Translate only this topic's positions (default: all of the plan).")
@click.option(
    "--to", "side", type=click.Choice([ENGINE, KAFKA]), default=ENGINE,
    help="Where the group goes on: in the engine, from where it is in Kafka (the default); or in Kafka, from where it is in "
    "the engine.",
)  # fmt: skip
@click.option("--apply", "applies", is_flag=True, help="Set the positions that are shown (default: only show them).")
@yes_option
@output_option
@instance_options("engine")
def command(
    instance: Instance, plan: str, name: str, topic: str | None, side: str, applies: bool, yes: bool, output: str
) -> None:
    """Translate the positions of a consumer group on the topics of PLAN, to the engine or back to Kafka.

    The messages at each position are compared on both sides: nothing is skipped. AGAIN counts messages that the group has
    handled and gets once more. Without --apply nothing is changed. With it, what is shown is what is set, and the group's
    consumers must have stopped, on Kafka and at the consumer proxies.
    """
    if not is_name(name):
        raise click.UsageError(f"--group {quoted(name)}: {NAME_RULE}")
    with administration(instance) as admin:
        planned = PlanStore(admin.store, admin.clock, admin.who).read(plan).plan
        names = [each for each in planned.topic_names if topic in (None, each)]
        if not names:
            raise CommandError(f"plan {plan}: it has no topic {topic}", NOT_FOUND)
        _check_recipe(planned, name)
        with opened_kafka(admin, planned.cluster) as kafka, engines.connected(instance, LINK_S) as links:
            engine = EnginePositions(links, stored_placed_topics(admin.store))
            move = _Move(name, planned, kafka, engine, [])
            move.rows.extend((_to_kafka if side == KAFKA else _to_engine)(admin, move, names))
            _check_journals(admin, names)
            if applies:
                _apply(move, side, names, yes)
    if applies:
        for each in names:
            own = [row for row in move.rows if row["topic"] == each]
            old, new = ({str(row["queue"]): row[at] for row in own} for at in (f"{side}_now", side))
            note(instance, "reset", "progress" if side == ENGINE else "kafka_progress", f"{name}/{each}", old, new)
    show_rows(move.rows, TO_KAFKA if side == KAFKA else TO_ENGINE, output)


def _check_recipe(plan: MigrationPlan, group: str) -> None:
    if plan.recipe != DOUBLE_READ:
        return
    if group in plan.groups:
        raise CommandError(
            f"plan {plan.name}: group {group} reads both sides by it: its position in Kafka is kept there by the bridges, and "
            "it goes on in the engine by itself: no position has to be set",
            CONFLICT,
        )
    raise CommandError(
        f"plan {plan.name}: its recipe {DOUBLE_READ} copies nothing, so group {group} has no position here: name it in the "
        "plan before start, or let it read on in Kafka",
        CONFLICT,
    )


def _check_journals(admin: Administrator, names: list[str]) -> None:
    """Refuse while a journal has, or may have missed, messages of topics that are written to both sides."""
    dual = [
        name for name in names if (entry := admin.store.get("topic", name)) is not None and entry.value.get("secondary")
    ]
    if not dual:
        return
    found = journal_facts(admin.store, dual, admin.store.version())
    if found.waiting:
        total = sum(each.messages for each in found.waiting)
        raise CommandError(
            f"{total:,} messages are on one side only, in the journal of {found.waiting[0].journal}: wait until it has brought "
            "them to the other one",
            CONFLICT,
        )
    if faults := [*found.unjournaled, *found.doubts]:
        raise CommandError(f"{faults[0]}; then compare both sides: penstock migrate verify --all --repair", CONFLICT)


def _check_members(move: _Move) -> None:
    state = move.kafka().groups().get(move.group, "")
    if state.lower() not in WITHOUT_MEMBERS:
        raise _has_members(move, state)


def _has_members(move: _Move, state: str) -> CommandError:
    return CommandError(
        f"kafka {move.plan.cluster}: group {move.group}: it has members ({state}): stop its consumers first", CONFLICT
    )


def _to_engine(admin: Administrator, move: _Move, names: list[str]) -> list[dict[str, Any]]:
    """Positions in the engine. All topics are translated before the first position is set."""
    committed = move.kafka().group_offsets(move.group)
    wanted = {topic: {each.number: at for each, at in committed.items() if each.topic == topic} for topic in names}
    if not any(wanted.values()):
        raise _no_position(f"kafka {move.plan.cluster}", move.group, names)
    rows = []
    for topic, own in wanted.items():
        if own:
            sides, definition = _sides(admin, move, topic)
            for each in _engine_wards(move, sides, definition)(own):
                now = _progress(move, sides.links[each.queue], topic, each.queue)
                rows.append({"topic": topic, **each._asdict(), "engine_now": now["progress"] if now else None})
    return rows


def _to_kafka(admin: Administrator, move: _Move, names: list[str]) -> list[dict[str, Any]]:
    """Positions in Kafka, of the queues in which the group has one in the engine."""
    committed = move.kafka().group_offsets(move.group)
    rows = []
    for topic in names:
        sides, definition = _sides(admin, move, topic)
        found = [_progress(move, link, topic, queue) for queue, link in sorted(sides.links.items())]
        own = {each["queue"]: each for each in found if each is not None}
        progress = [
            EngineProgress(queue, each["progress"], each["end"] - each["progress"] - each["lag"])
            for queue, each in own.items()
        ]
        for place in _kafka_wards(move, sides, definition)(progress):
            row = {"topic": topic, **place._asdict(), "kafka_now": committed.get(Partition(topic, place.queue))}
            rows.append({**row, "withheld": own[place.queue]["withheld"]})
    if not rows:
        raise _no_position("engine", move.group, names)
    _tell_what_stays(move, names, rows)
    return rows


def _no_position(where: str, group: str, names: list[str]) -> CommandError:
    return CommandError(f"{where}: group {group}: it has no position on {', '.join(names)}", NOT_FOUND)


def _engine_wards(
    move: _Move, sides: TopicSides, definition: TopicDefinition
) -> Callable[[dict[int, int]], list[TranslatedPosition]]:
    if _is_paired(move, sides, definition):
        return PairedPositions(sides).translated
    return GroupPositions(sides, is_cut=definition.cut is not None).translated


def _kafka_wards(
    move: _Move, sides: TopicSides, definition: TopicDefinition
) -> Callable[[list[EngineProgress]], list[ReturnedPosition]]:
    if _is_paired(move, sides, definition):
        return PairedPositions(sides).returned
    is_returned = definition.home != "engine" and definition.cut is not None
    return ReturnedPositions(sides, is_returned=is_returned).translated


def _is_paired(move: _Move, sides: TopicSides, definition: TopicDefinition) -> bool:
    """Whether proxies have written the topic's messages to both sides, so that no record names its place on the other."""
    if move.plan.recipe == DOUBLE_WRITE and definition.cut is not None:
        return True
    return any(each.reason.endswith(BOTH_HAVE) for row in sides.rows for each in row.sources)


def _sides(admin: Administrator, move: _Move, topic: str) -> tuple[TopicSides, TopicDefinition]:
    entry, found = admin.store.get("topic", topic), move.kafka().topics([topic]).get(topic)
    if entry is None or found is None:
        raise CommandError(f"topic {topic}: it is not on both sides: start the plan first", CONFLICT)
    definition = TopicDefinition.from_value(topic, entry.value)
    copied = CopiedTopic(topic, definition.made_ms, definition.queues)
    return TopicSides(copied, found, move.kafka(), move.engine, move.kafka.reader), definition


def _progress(move: _Move, link: EngineLink, topic: str, queue: int) -> dict[str, Any] | None:
    """The group's row of `lag` in the engine; None: it has none."""
    try:
        rows = link.ask("lag", group=move.group, topic=topic)["queues"]
    except AdminError as error:
        if error.code in (Code.UNKNOWN_GROUP, Code.UNKNOWN_TOPIC):
            return None
        raise
    return next((row for row in rows if row["queue"] == queue), None)


def _tell_what_stays(move: _Move, names: list[str], rows: list[dict[str, Any]]) -> None:
    """Name what a position in Kafka does not cover."""
    for each in (letters for found in move.engine.dead_letters(names, [move.group]).values() for letters in found):
        if each.group == move.group:
            click.echo(
                f"stays in the engine: {each.messages:,} dead letters of {each.topic}: redrive leads there, so handle or purge "
                f"them: penstock group dead-letters list {move.group} --topic {each.topic}",
                err=True,
            )
    for topic in names:
        if (delayed := move.engine.delayed(topic)).messages:
            click.echo(
                f"stays in the engine: {delayed.messages:,} delayed messages of {topic}, the last one until "
                f"{utc(delayed.last_due_ms)}: they come there only: keep a consumer at the proxies until then",
                err=True,
            )
    if withheld := sum(row["withheld"] for row in rows):
        click.echo(f"{withheld:,} messages are withheld by RETRY in the engine: Kafka gives them at once", err=True)


def _apply(move: _Move, side: str, names: list[str], yes: bool) -> None:
    """Set what was shown."""
    _check_members(move)
    again = sum(row["again"] for row in move.rows)
    confirm(
        f"Set {len(move.rows):,} positions of group {move.group} in {'Kafka' if side == KAFKA else 'the engine'}? It gets "
        f"{again:,} messages again that it has handled.",
        yes,
    )
    if side == KAFKA:
        _set_in_kafka(move)
        return
    for topic in names:
        for home in move.engine.homes(CopiedTopic(topic, 0, 1 + max(row["queue"] for row in move.rows))):
            for row in (each for each in move.rows if each["topic"] == topic and each["queue"] in home.queues):
                home.link.ask("reset", group=move.group, topic=topic, to=row["engine"], queue=row["queue"], create=True)


def _set_in_kafka(move: _Move) -> None:
    wanted = {Partition(row["topic"], row["queue"]): row["kafka"] for row in move.rows}
    try:
        move.kafka().set_group_offsets(move.group, wanted)
    except KafkaRefusal as refusal:
        if refusal.number in HAS_MEMBERS:  # they have joined since it was asked
            raise _has_members(move, str(refusal)) from refusal
        raise
    found = move.kafka().group_offsets(move.group)
    if differing := [each for each, at in wanted.items() if found.get(each) != at]:
        each = differing[0]
        raise CommandError(
            f"kafka {move.plan.cluster}: group {move.group}, {each.topic} {each.number}: it is at {found.get(each)} and not at "
            f"{wanted[each]}: a consumer has committed: stop it, and set the positions again",
            CONFLICT,
        )
