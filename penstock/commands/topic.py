"""`penstock topic`: create, list, show, set, delete. Families too, whose names end with `*`."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from common.admin import bulk, families, groups, topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.checks import is_family
from common.config.definitions import CopyInDefinition, TopicDefinition
from common.config.errors import EntryNotFound
from common.config.text_values import KAFKA_HOME
from penstock.commands.auto_created import auto_created, auto_created_if_reachable
from penstock.commands.topic_stats import is_defined, stats
from penstock.terminal import completing, progress
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import CONFLICT, NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options, note, warn_unreadable
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from penstock.terminal.paging import page_options
from penstock.terminal.reading import lines_of
from penstock.terminal.setting_options import settings_options, shown

COLUMNS = ("name", "kind", "queues", "durability", "body_bytes_max")
CREATED_COLUMNS = ("name", "id", "queues")


def row(topic: TopicDefinition) -> dict[str, Any]:
    found = {"name": topic.name, "kind": topic.kind, **shown(topic)}
    found.pop("made_ms", None)
    return found


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, show, set and delete topics.

    A family is one definition for all topics whose names begin with a prefix. Such a topic needs no entry of its own:
    it is created by its first message. The longest matching prefix wins, and a topic's own entry overrides every
    family. All settings: docs/settings.md.

    \b
    penstock topic create orders payments --queues 16 --durability fsync
    penstock topic create 'metrics.*' --family --queues 4 --durability memory
    penstock topic create --from names.txt --skip-existing
    penstock topic list --prefix ord -o json
    penstock topic list --auto-created --prefix metrics. --limit 100
    """


@topic.command()
@click.argument("names", nargs=-1)
@click.option("--family", is_flag=True, help="Create families: NAMES are prefixes followed by *.")
@click.option(
    "--from",
    "file",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Create also the topics in FILE (- for stdin), one per line: name, or name,queues,durability. # begins a comment.",
)
@click.option("--skip-existing", is_flag=True, help="Leave existing topics as they are, and create the others.")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.Choice(["lone-replica"]),
    help="Create a topic with a home in Kafka also where a single replica may acknowledge its messages.",
)
@click.option(
    "--copy-from",
    metavar="earliest|latest|TIME",
    help="With a home in Kafka: let pulls begin with the records that Kafka has from here on (default earliest).",
)
@settings_options(TopicSettings)
@output_option
@instance_options()
def create(
    instance: Instance,
    names: tuple[str, ...],
    family: bool,
    file: TextIO | None,
    skip_existing: bool,
    accepted: tuple[str, ...],
    copy_from: str | None,
    output: str,
    settings: TopicSettings,
) -> None:
    """Create topics, or with --family families of topics.

    Nothing is created when a name or a line is invalid (exit code 2), or when one of the topics exists (exit code 4).
    With --home kafka:NAME the topics must exist in that cluster, and get as many queues as they have partitions there.
    """
    if family and (file or skip_existing):
        raise click.UsageError("--family needs NAMES: leave out --from and --skip-existing")
    if not family and (wrong := next(filter(is_family, names), None)):
        raise click.UsageError(f"{wrong} is not a topic name: use --family to create the family of that prefix")
    if not names and not file:
        raise click.UsageError("no topic is named: give NAMES, or use --from FILE")
    with progress.shown():
        listed = bulk.parse(progress.counted(lines_of(file), "lines")) if file else {}
        wanted = {**dict.fromkeys(names, TopicSettings()), **listed}
        progress.say(f"writing {len(wanted):,} definitions")
        with administration(instance, changes=True) as admin:
            made: Sequence[TopicDefinition]
            if family:
                made = families.create(admin, names, settings)
            else:
                wanted = at_home(admin, wanted, settings, accepted, copy_from)
                made = topics.create(admin, wanted, settings, skip_existing)
    show_created(made, len(wanted) - len(made), output)


def at_home(
    admin: Administrator, wanted: dict[str, TopicSettings], settings: TopicSettings, accepted: Sequence[str],
    copy_from: str | None,
) -> dict[str, TopicSettings]:  # fmt: skip
    """The settings of each topic as its home needs them."""
    if not str(settings.given().get("home", "")).startswith(KAFKA_HOME):
        if copy_from is not None:
            raise click.UsageError("--copy-from is for topics whose home is Kafka: use --home kafka:NAME")
        return wanted
    from penstock.commands import kafka_homes  # a client of Kafka: only for the topics that need one

    return kafka_homes.fit_to_kafka(admin, wanted, settings, accepted, copy_from or kafka_homes.EARLIEST_TEXT)


def show_created(made: Sequence[TopicDefinition], skipped: int, output: str) -> None:
    if is_for_scripts(output) or 0 < len(made) <= 20:
        show_rows([row(each) for each in made], COLUMNS, output)
    else:
        click.echo(f"{len(made)} topics created")
    if skipped:
        click.echo(f"{skipped:,} existed already and were left as they are", err=True)


@topic.command("list")
@page_options
@click.option(
    "--auto-created",
    "only_created",
    is_flag=True,
    help="List the topics that the engine has created with their first message, in place of definitions.",
)
@click.option("--born", "only_created", is_flag=True, hidden=True)
@click.option("--count", "only_count", is_flag=True, help="Show only how many there are.")
@output_option
@instance_options("engine")
def list_command(
    instance: Instance, prefix: str, after: str, limit: int, only_created: bool, only_count: bool, output: str
) -> None:
    """List topics and families by name, a page at a time.

    Durability is that of sends that ask for none. A broker without a slave keeps `replicated` as `fsync` does.
    """
    if only_count:
        show_one({"prefix": prefix, **(count_created if only_created else count_defined)(instance, prefix)}, output)
    elif only_created:
        show_page(list(auto_created(instance, prefix, after, limit)), CREATED_COLUMNS, limit, output, "")
    else:
        with administration(instance) as admin:
            found = page(admin, prefix, after, limit)
            total = counts(admin, prefix)
        show_page([row(each) for each in found], COLUMNS, limit, output, f" of {sum(total.values()):,}")


def page(admin: Administrator, prefix: str, after: str, limit: int) -> list[TopicDefinition]:
    found: list[TopicDefinition] = []
    for list_page in (families.list_families, topics.list_topics):
        found += list_page(admin, prefix, after, limit, warn_unreadable)
    return sorted(found, key=lambda each: each.name)[:limit]


def show_page(rows: list[dict[str, Any]], columns: tuple[str, ...], limit: int, output: str, of: str) -> None:
    show_rows(rows, columns, output)
    if len(rows) == limit and not is_for_scripts(output):
        click.echo(f"{len(rows):,}{of} shown: use --after {rows[-1]['name']} for the next page", err=True)


def counts(admin: Administrator, prefix: str) -> dict[str, int]:
    return {"families": admin.store.count("family", prefix), "topics": admin.store.count("topic", prefix)}


def count_defined(instance: Instance, prefix: str) -> dict[str, int]:
    with administration(instance) as admin:
        return counts(admin, prefix)


def count_created(instance: Instance, prefix: str) -> dict[str, int]:
    with progress.shown():
        return {"auto_created": sum(1 for _ in progress.counted(auto_created(instance, prefix), "topics"))}


@topic.command()
@click.argument("name", shell_complete=completing.all_topics)
@output_option
@instance_options("engine")
def show(instance: Instance, name: str, output: str) -> None:
    """Show one topic or family. A topic without an entry of its own has the settings of its family.

    Of a topic that is copied from Kafka, `copy` says what the copy waits for.
    """
    with administration(instance) as admin:
        try:
            found, version = (families if is_family(name) else topics).show(admin, name)
        except EntryNotFound:
            family = None if is_family(name) else families.defining(admin, name)
            if family is None:
                raise
            show_one({**row(family.topic(name)), "defined_by": f"family {family.name}"}, output)
            return
        copy = state_of_copy(instance, admin, found)
    show_one({**row(found), **copy, "version": version}, output)


def state_of_copy(instance: Instance, admin: Administrator, topic: TopicDefinition) -> dict[str, Any]:
    """What the copy from Kafka into a topic waits for; empty where there is none."""
    if topic.kafka_cluster is None and not admin.store.taken(CopyInDefinition.kind, [topic.name]):
        return {}
    from penstock.commands import kafka_copies  # a client of Kafka: only for the topics that need one

    return kafka_copies.shown_status(instance, admin, topic)


@topic.command("set")
@click.argument("name", shell_complete=completing.all_topics)
@click.option("--force", is_flag=True, help="Add queues also when the order by key of a group breaks.")
@settings_options(TopicSettings)
@output_option
@instance_options("engine")
def set_command(
    instance: Instance,
    name: str,
    force: bool,
    output: str,
    settings: TopicSettings,
) -> None:
    """Change the given settings of a topic or a family. Every proxy follows within a second.

    More queues move keys to other queues. Groups with order by key keep the order: a key's messages in its old queue
    come first. With several broker groups that holds only for groups without a backlog; others are refused (exit code
    4).

    Another --broker-group adds as many queues as take messages now, in the new broker groups. The other queues take no
    more messages; what they have is pulled from where it is. No message moves.
    """
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --queues, see --help")
    with administration(instance, changes=True) as admin:
        if settings.given().keys() & {"queues", "broker_groups"} and not force and not is_family(name):
            old = topics.show(admin, name)[0]
            new = old.complete({**old.to_value(), **settings.given()})
            refuse_backlogs(instance, name, old.queues, new["queues"])
        change = families.set_family if is_family(name) else topics.set_topic
        changed = change(admin, name, settings)
    show_one(row(changed), output)


def refuse_backlogs(instance: Instance, topic: str, old: int, new: int) -> None:
    """Raise CommandError when queues of several engines are added under a backlog of a group with order by key."""
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    with administration(instance) as admin:
        ordered = [each.name for each in groups.list_groups(admin, limit=1 << 30) if each.order == "key"]
    for group in ordered if new > old and ordered and len(instance.engines()) > 1 else ():
        try:
            answers = engines.ask_all(instance, "lag", group=group, topic=topic)
        except CommandError as error:
            if error.exit_code == NOT_FOUND:
                continue  # it has never pulled
            raise
        if lag := sum(row["lag"] for answer in answers.values() for row in answer["queues"]):
            raise CommandError(
                f"topic {topic}: group {group} has order by key and a backlog of {lag:,} messages, whose keys move to "
                "other engines: wait until it has none, or use --force",
                CONFLICT,
            )


@topic.command()
@click.argument("name", shell_complete=completing.all_topics)
@click.option("--force", is_flag=True, help="Delete a family also when topics of it exist.")
@yes_option
@output_option
@instance_options("engine")
def delete(instance: Instance, name: str, force: bool, yes: bool, output: str) -> None:
    """Delete the definition of a topic or a family. Stored messages stay until retention deletes them.

    A topic that is created again is a new one: it has no messages, no progress of groups and no delayed messages of the
    old one, and old receipts do not count. Topics of a family are not deleted with it.

    Sends to and pulls from a topic without a definition are rejected. If another family matches, it defines the topic.
    """
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {_with_messages(instance, name)}?", yes)
    answer: dict[str, Any] = {"deleted": name}
    with administration(instance, changes=True) as admin:
        if is_family(name):
            answer["topics"] = families.delete(
                admin, name, lambda prefix: auto_created_if_reachable(instance, prefix), force
            )
        else:
            topics.delete(admin, name)
            if family := families.defining(admin, name):
                answer["defined_by"] = f"family {family.name}"
    show_one(answer, output)


def _with_messages(instance: Instance, name: str) -> str:
    """The topic with the number of its messages, where the engines can tell it."""
    if is_family(name):
        return f"family {name}"
    try:
        count = sum(each["end"] - each["first"] for each in _stored(instance, name))
    except CommandError:
        return f"topic {name}"
    return f"topic {name} with {count:,} messages"


def _stored(instance: Instance, name: str) -> list[dict[str, Any]]:
    """First offset and end of each queue that has had a message. Raises CommandError, also when there is no such topic."""
    from engine.client import joined
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    try:
        answers = engines.ask_all(instance, "purge_topic", topic=name)
    except CommandError as error:
        if error.exit_code != NOT_FOUND or not is_defined(instance, name):
            raise
        return []  # no engine has made it yet: nothing was sent to it
    found = {group: answer["purged"] for group, answer in answers.items()}
    homes = list(instance.engines())
    return joined.rows_of_queues(found, homes, name, instance.placed_topics(homes))


@topic.command()
@click.option("--days", type=click.IntRange(0, 3_660), default=30, metavar="N", help="Days without a use (default 30).")
@output_option
@instance_options("engine")
def unused(instance: Instance, days: int, output: str) -> None:
    """List topics of families that are empty and were not used for N days in which the engine ran.

    An engine forgets them by itself after its --expire-days (default 30; 0: never), once a day. It keeps those that have
    a delayed message, and those in which a group has a position whose start would pass over messages of a topic that
    comes back. With several broker groups each forgets its own; at most 1,000 topics of each are listed.
    """
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    answers = engines.ask_all(instance, "unused_topics", days=days)
    rows = [{**each, "broker_group": group} for group, answer in answers.items() for each in answer["unused"]]
    show_rows(sorted(rows, key=lambda row: row["name"]), (*CREATED_COLUMNS, "broker_group"), output)


@topic.command()
@click.argument("name", shell_complete=completing.all_topics)
@click.option("--yes", is_flag=True, help="Purge without asking.")
@click.option("--dry-run", is_flag=True, help="Only show how many messages would be deleted.")
@output_option
@instance_options("engine")
def purge(instance: Instance, name: str, yes: bool, dry_run: bool, output: str) -> None:
    """Delete all messages that topic NAME has now, and keep the topic.

    Its definition stays, its offsets go on, and every group continues with the next message. What consumers hold is gone
    too. Delayed messages that are not due yet stay, and sends with an id that the topic has stored lately are still
    duplicates. The disk has its room back when retention deletes the segments.
    """
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    rows = _stored(instance, name)
    count = sum(each["end"] - each["first"] for each in rows)
    if dry_run:
        show_one({"topic": name, "would_purge": count}, output)
        return
    if count and not yes:
        click.confirm(f"Delete {count:,} messages of topic {name}?", abort=True, err=True)
    if count:
        # Only what was counted: messages that come in between stay.
        ends = {str(each["queue"]): each["end"] for each in rows}
        engines.ask_all(instance, "purge_topic", topic=name, ends=ends)
        note(instance, "purge", "topic", name, None, {"purged": count})
    show_one({"topic": name, "purged": count}, output)


topic.add_command(stats)
command = topic
