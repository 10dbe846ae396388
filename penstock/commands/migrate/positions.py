"""`penstock migrate positions`."""

from typing import Any

import click

from common.admin.administrator import Administrator
from common.config.definitions import TopicDefinition
from common.config.placed_topics import stored_placed_topics
from common.contract import Code
from engine.client.admin import AdminError
from engine.link.errors import LinkError
from migration.entries import PlanStore
from migration.group_positions import GroupPositions, TranslatedPosition
from migration.plan import MigrationPlan
from migration.positions import CopiedTopic, EngineLink, EnginePositions
from penstock.commands import engines
from penstock.commands.exits import CONFLICT, NOT_FOUND, Command, CommandError, code_for_contract
from penstock.commands.instance import Instance, administration, instance_options, note
from penstock.commands.migrate.work import OpenedKafka, opened_kafka
from penstock.commands.output import output_option, show_rows

COLUMNS = ("topic", "queue", "kafka", "engine_now", "engine", "end", "checked")
LINK_S = 60.0
WITHOUT_MEMBERS = ("empty", "dead", "")


@click.command(cls=Command, name="positions")
@click.argument("plan")
@click.option("--group", "name", required=True, metavar="GROUP", help="Consumer group of Kafka, and of the engine.")
@click.option("--topic", metavar="TOPIC", help="Translate only this topic's positions (default: all of the plan).")
@click.option("--apply", "applies", is_flag=True, help="Set the group's positions in the engine (default: show them).")
@output_option
@instance_options("engine")
def command(instance: Instance, plan: str, name: str, topic: str | None, applies: bool, output: str) -> None:
    """Translate the positions of a Kafka consumer group on the topics of PLAN to the engine.

    The messages before and after each position are compared by id and content on both sides: nothing is skipped, and
    nothing is read again. Without --apply nothing is changed. With it, the group's consumers on Kafka must have stopped.
    """
    with administration(instance) as admin:
        entry = PlanStore(admin.store, admin.clock, admin.who).read(plan)
        names = [each for each in entry.plan.topic_names if topic in (None, each)]
        if not names:
            raise CommandError(f"plan {plan}: it has no topic {topic}", NOT_FOUND)
        with opened_kafka(admin, entry.plan.cluster) as kafka, engines.connected(instance, LINK_S) as links:
            try:
                rows = _rows(
                    admin,
                    entry.plan,
                    kafka,
                    EnginePositions(links, stored_placed_topics(admin.store)),
                    name,
                    names,
                    applies,
                )
            except AdminError as error:
                raise CommandError(f"engine: {error}", code_for_contract(error.code)) from error
            except (LinkError, OSError) as error:
                raise CommandError(f"engine: {error}") from error
    if applies:
        for each in names:
            own = [row for row in rows if row["topic"] == each]
            old, new = ({str(row["queue"]): row[side] for row in own} for side in ("engine_now", "engine"))
            note(instance, "reset", "progress", f"{name}/{each}", old, new)
    show_rows(rows, COLUMNS, output)


def _rows(
    admin: Administrator, plan: MigrationPlan, kafka: OpenedKafka, engine: EnginePositions, name: str,
    names: list[str], applies: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """Translate, and set if asked for: all topics are translated before the first position is set."""
    committed = kafka().group_offsets(name)
    wanted = {topic: {each.number: at for each, at in committed.items() if each.topic == topic} for topic in names}
    if not any(wanted.values()):
        raise CommandError(f"kafka {plan.cluster}: group {name}: it has no position on {', '.join(names)}", NOT_FOUND)
    state = kafka().groups().get(name, "")
    if applies and state.lower() not in WITHOUT_MEMBERS:
        raise CommandError(
            f"kafka {plan.cluster}: group {name}: it has members ({state}): stop its consumers first", CONFLICT
        )
    found = []
    for topic, own in wanted.items():
        if own:
            translator = _translator(admin, kafka, engine, topic)
            found.append((topic, translator, translator.translated(own)))
    rows = []
    for topic, translator, positions in found:
        for position in positions:
            link = translator.links[position.queue]
            now = _progress(link, name, topic, position.queue)
            if applies:
                translator.reset(link, name, position)
            rows.append(_row(topic, position, now))
    return rows


def _translator(admin: Administrator, kafka: OpenedKafka, engine: EnginePositions, topic: str) -> GroupPositions:
    entry, found = admin.store.get("topic", topic), kafka().topics([topic]).get(topic)
    if entry is None or found is None:
        raise CommandError(f"topic {topic}: it is not on both sides: start the plan first", CONFLICT)
    definition = TopicDefinition.from_value(topic, entry.value)
    copied = CopiedTopic(topic, definition.made_ms, definition.queues)
    return GroupPositions(
        copied, found.id.bytes, kafka(), engine, kafka.reader, is_cut=definition.cut is not None
    )  # fmt: skip


def _progress(link: EngineLink, group: str, topic: str, queue: int) -> int | None:
    """The group's position in the engine now; None: it has none."""
    try:
        rows = link.ask("lag", group=group, topic=topic)["queues"]
    except AdminError as error:
        if error.code in (Code.UNKNOWN_GROUP, Code.UNKNOWN_TOPIC):
            return None
        raise
    return next((row["progress"] for row in rows if row["queue"] == queue), None)


def _row(topic: str, position: TranslatedPosition, now: int | None) -> dict[str, Any]:
    return {"topic": topic, **position._asdict(), "engine_now": now}
