"""`penstock topic`: create, list, show, set, delete; families too, whose names end with `*`."""

from collections.abc import Sequence
from typing import Any, TextIO

import click

from common.admin import bulk, families, topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.checks import is_family
from common.config.definitions import BODY_FORMATS, BUFFERS, DURABILITIES, GRADES, TopicDefinition
from common.config.errors import EntryNotFound
from penstock.commands import progress
from penstock.commands.born import born, born_if_reachable
from penstock.commands.exits import Group
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.output import output_option, show_one, show_rows
from penstock.commands.rates import rate_options

COLUMNS = ("name", "kind", "queues", "durability", "body_bytes_max")
HOUR_MS, MIB = 3_600_000, 1 << 20
BORN_COLUMNS = ("name", "id", "queues")


def row(topic: TopicDefinition) -> dict[str, Any]:
    """The definition; a retention or a window of ids only where it has one of its own."""
    value = topic.to_value()
    for stored, shown, unit in (
        ("retention_ms", "retention_hours", HOUR_MS),
        ("retention_bytes", "retention_mib", MIB),
        ("id_window_ms", "id_window_s", 1000),
        ("delay_ms_max", "delay_hours_max", HOUR_MS),
        ("backlog_bytes", "backlog_mib", MIB),
        ("backlog_age_ms", "backlog_s", 1000),
    ):
        if stored in value:
            value[shown] = round(value.pop(stored) / unit, 3)
    return {"name": topic.name, "kind": topic.kind, **value}


def settings_of(given: dict[str, Any]) -> TopicSettings:
    """What the options of `settings_options` say, in the definition's units."""
    for shown, stored, unit in (
        ("retention_hours", "retention_ms", HOUR_MS),
        ("retention_mib", "retention_bytes", MIB),
        ("id_window_s", "id_window_ms", 1000),
        ("delay_hours_max", "delay_ms_max", HOUR_MS),
        ("backlog_mib", "backlog_bytes", MIB),
        ("backlog_s", "backlog_age_ms", 1000),
    ):
        value = given.pop(shown)
        given[stored] = None if value is None else round(value * unit)
    for listed in ("required_properties", "required_groups"):
        given[listed] = tuple(filter(None, given[listed])) if given[listed] else None
    return TopicSettings(**given)


_SETTINGS_OPTIONS = (
    click.option(
        "--backlog-s",
        type=click.FloatRange(min=0),
        help="Refuse sends while a required group's oldest message is older; 0: no bound.  [new: 0]",
    ),
    click.option(
        "--backlog-mib", type=click.FloatRange(min=0), help="The same for bytes that it has not acknowledged.  [new: 0]"
    ),
    click.option("--backlog-messages", type=int, help="The same for messages that it has not acknowledged.  [new: 0]"),
    click.option(
        "--required-group",
        "required_groups",
        multiple=True,
        metavar="GROUP",
        help="Whose backlog counts; repeatable, an empty one clears the list. One that never pulled is behind by everything.",
    ),
    click.option(
        "--id-window-s",
        type=click.FloatRange(min=0),
        help="How long a second message with the id of a first is a DUPLICATE; 0: never.  [new: 600]",
    ),
    click.option(
        "--delay-hours-max",
        type=click.FloatRange(min=0),
        help="How far ahead a message may be delayed; 0: as long as messages are kept.  [new: 9600, which is the most]",
    ),
    click.option(
        "--buffer",
        type=click.Choice(BUFFERS),
        help="Where the producer proxy keeps messages while the engine does not take them.  [new: off]",
    ),
    click.option(
        "--required-property",
        "required_properties",
        multiple=True,
        help="Refuse messages without this property; repeatable, an empty one clears the list.",
    ),
    click.option(
        "--body-format", type=click.Choice(BODY_FORMATS), help="json: refuse bodies that are no JSON.  [new: any]"
    ),
    click.option("--grade", type=click.Choice(GRADES), help="Low is refused first in overload.  [new: normal]"),
    *rate_options("Taken", "send"),
    click.option(
        "--retention-mib",
        type=click.FloatRange(min=0),
        help="Keep so much of it, shared evenly by its queues; 0: no limit.  [new: 0]",
    ),
    click.option(
        "--retention-hours",
        type=click.FloatRange(min=0),
        help="How old a message gets; 0: as the engine keeps all.  [new: 0]",
    ),
    click.option("--body-bytes-max", type=int, help="Largest message body.  [default of a new topic: 4194304]"),
    click.option(
        "--durability", type=click.Choice(DURABILITIES), help="What an answered send means.  [new: replicated]"
    ),
    click.option("--queues", type=int, help="1 to 10000; can grow later, not shrink.  [new: 8]"),
)


def settings_options(command: Any) -> Any:
    for option in _SETTINGS_OPTIONS:
        command = option(command)
    return command


@click.group(cls=Group)
def topic() -> None:
    """Create, list, show, set and delete topics.

    A family is one definition for all topics whose names begin with a prefix. They need no entry of their own and come into
    being with their first message. The longest matching prefix wins; an entry of its own goes before any family.

    \b
    penstock topic create orders payments --queues 16 --durability fsync
    penstock topic create 'metrics.*' --family --queues 4 --durability memory
    penstock topic create --from names.txt --skip-existing
    penstock topic list --prefix ord -o json
    penstock topic list --born --prefix metrics. --limit 100
    """


@topic.command()
@click.argument("names", nargs=-1)
@click.option("--family", is_flag=True, help="NAMES are prefixes with * behind them.")
@click.option(
    "--from",
    "file",
    type=click.File(encoding="utf-8", errors="replace"),
    help="Also the topics in this file; - for stdin. A line each: name, or name,queues,durability. # begins a comment.",
)
@click.option("--skip-existing", is_flag=True, help="Leave those that exist as they are, and create the others.")
@settings_options
@output_option
@instance_options()
def create(
    instance: Instance,
    names: tuple[str, ...],
    family: bool,
    file: TextIO | None,
    skip_existing: bool,
    output: str,
    **given: Any,
) -> None:
    """Create topics, or with --family families of topics.

    Nothing is created when a name or a line is wrong (exit code 2), or when one exists (exit code 4).
    """
    settings = settings_of(given)
    if family and (file or skip_existing):
        raise click.UsageError("--family goes with NAMES alone, without --from and --skip-existing")
    if not family and (wrong := next(filter(is_family, names), None)):
        raise click.UsageError(f"{wrong} is no topic; to create the family of that prefix, say --family")
    if not names and not file:
        raise click.UsageError("name at least one topic, or use --from FILE")
    with progress.shown():
        listed = bulk.parse(progress.counted(file, "lines")) if file else {}
        wanted = {**dict.fromkeys(names, TopicSettings()), **listed}
        progress.say(f"writing {len(wanted):,} definitions")
        with administration(instance, changes=True) as admin:
            made: Sequence[TopicDefinition]
            if family:
                made = families.create(admin, names, settings)
            else:
                made = topics.create(admin, wanted, settings, skip_existing)
    show_created(made, len(wanted) - len(made), output)


def show_created(made: Sequence[TopicDefinition], skipped: int, output: str) -> None:
    if output == "json" or 0 < len(made) <= 20:
        show_rows([row(each) for each in made], COLUMNS, output)
    else:
        click.echo(f"{len(made)} topics created")
    if skipped:
        click.echo(f"{skipped:,} existed already and stay as they are", err=True)


@topic.command("list")
@click.option("--prefix", default="", help="Only names that begin so.")
@click.option("--after", default="", metavar="NAME", help="The next page: names behind this one.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@click.option("--born", "only_born", is_flag=True, help="Topics that the engine has, in place of definitions.")
@click.option("--count", "only_count", is_flag=True, help="Only how many there are.")
@output_option
@instance_options("engine")
def list_command(
    instance: Instance, prefix: str, after: str, limit: int, only_born: bool, only_count: bool, output: str
) -> None:
    """List topics and families by name, a page at a time."""
    if only_count:
        show_one({"prefix": prefix, **(count_born if only_born else count_defined)(instance, prefix)}, output)
    elif only_born:
        show_page(list(born(instance, prefix, after, limit)), BORN_COLUMNS, limit, output, "")
    else:
        with administration(instance) as admin:
            found = page(admin, prefix, after, limit)
            total = counts(admin, prefix)
        show_page([row(each) for each in found], COLUMNS, limit, output, f" of {sum(total.values()):,}")


def page(admin: Administrator, prefix: str, after: str, limit: int) -> list[TopicDefinition]:
    found = [*families.list_families(admin, prefix, after, limit), *topics.list_topics(admin, prefix, after, limit)]
    return sorted(found, key=lambda each: each.name)[:limit]


def show_page(rows: list[dict[str, Any]], columns: tuple[str, ...], limit: int, output: str, of: str) -> None:
    show_rows(rows, columns, output)
    if len(rows) == limit and output == "table":
        click.echo(f"{len(rows):,}{of} shown; the next page: --after {rows[-1]['name']}", err=True)


def counts(admin: Administrator, prefix: str) -> dict[str, int]:
    return {"families": admin.store.count("family", prefix), "topics": admin.store.count("topic", prefix)}


def count_defined(instance: Instance, prefix: str) -> dict[str, int]:
    with administration(instance) as admin:
        return counts(admin, prefix)


def count_born(instance: Instance, prefix: str) -> dict[str, int]:
    with progress.shown():
        return {"born": sum(1 for _ in progress.counted(born(instance, prefix), "topics"))}


@topic.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one topic, or a family. A topic without an entry of its own is as its family says."""
    with administration(instance) as admin:
        try:
            found, version = (families if is_family(name) else topics).show(admin, name)
        except EntryNotFound:
            family = None if is_family(name) else families.defining(admin, name)
            if family is None:
                raise
            show_one({**row(family.topic(name)), "defined_by": f"family {family.name}"}, output)
            return
    show_one({**row(found), "version": version}, output)


@topic.command("set")
@click.argument("name")
@settings_options
@output_option
@instance_options()
def set_command(
    instance: Instance,
    name: str,
    output: str,
    **given: Any,
) -> None:
    """Change a topic or a family; what is not named stays. Every proxy follows within a second."""
    settings = settings_of(given)
    if not settings.given():
        raise click.UsageError("say what to set, such as --queues or --rate-messages; --help shows all")
    with administration(instance, changes=True) as admin:
        change = families.set_family if is_family(name) else topics.set_topic
        changed = change(admin, name, settings)
    show_one(row(changed), output)


@topic.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="A family also when topics of it exist.")
@output_option
@instance_options("engine")
def delete(instance: Instance, name: str, force: bool, output: str) -> None:
    """Delete a topic's definition, or a family. Stored messages stay until retention takes them.

    A topic without a definition is unknown: sends and pulls are refused. Where another family matches, that one defines it.
    """
    answer: dict[str, Any] = {"deleted": name}
    with administration(instance, changes=True) as admin:
        if is_family(name):
            answer["topics"] = families.delete(admin, name, lambda prefix: born_if_reachable(instance, prefix), force)
        else:
            topics.delete(admin, name)
            if family := families.defining(admin, name):
                answer["defined_by"] = f"family {family.name}"
    show_one(answer, output)


command = topic
