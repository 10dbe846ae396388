"""`penstock topic`: create, list, show, set, delete."""

from typing import Any, TextIO

import click

from common.admin import topics
from common.admin.topics import TopicSettings
from common.config.definitions import DURABILITIES, TopicDefinition
from penstock.commands.exits import Group
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.output import output_option, show_one, show_rows

COLUMNS = ("name", "queues", "durability", "body_bytes_max")


def row(topic: TopicDefinition) -> dict[str, Any]:
    return {"name": topic.name, **topic.to_value()}


def settings_options(command: Any) -> Any:
    for option in (
        click.option("--body-bytes-max", type=int, help="Largest message body.  [default of a new topic: 4194304]"),
        click.option(
            "--durability", type=click.Choice(DURABILITIES), help="What an answered send means.  [new: replicated]"
        ),
        click.option("--queues", type=int, help="1 to 10000; can grow later, not shrink.  [new: 8]"),
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def topic() -> None:
    """Create, list, show, set and delete topics.

    \b
    penstock topic create orders payments --queues 16 --durability fsync
    penstock topic create --from names.txt
    penstock topic list --prefix ord -o json
    """


@topic.command()
@click.argument("names", nargs=-1)
@click.option("--from", "file", type=click.File(), help="Also the names in this file, one a line; - for stdin.")
@settings_options
@output_option
@instance_options()
def create(
    instance: Instance,
    names: tuple[str, ...],
    file: TextIO | None,
    queues: int | None,
    durability: str | None,
    body_bytes_max: int | None,
    output: str,
) -> None:
    """Create topics NAMES, all of one make. Exit code 4 and nothing created when one exists."""
    wanted = [*names, *((line.strip() for line in file if line.strip()) if file else ())]
    if not wanted:
        raise click.UsageError("name at least one topic, or use --from FILE")
    with administration(instance, changes=True) as admin:
        made = topics.create(admin, wanted, TopicSettings(queues, durability, body_bytes_max))
    if output == "json" or len(made) <= 20:
        show_rows([row(each) for each in made], COLUMNS, output)
    else:
        click.echo(f"{len(made)} topics created")


@topic.command("list")
@click.option("--prefix", default="", help="Only names that begin so.")
@click.option("--after", default="", metavar="NAME", help="The next page: names behind this one.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@output_option
@instance_options()
def list_command(instance: Instance, prefix: str, after: str, limit: int, output: str) -> None:
    """List topics by name."""
    with administration(instance) as admin:
        found = topics.list_topics(admin, prefix, after, limit)
    show_rows([row(each) for each in found], COLUMNS, output)
    if len(found) == limit and output == "table":
        click.echo(f"there may be more: --after {found[-1].name}", err=True)


@topic.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one topic."""
    with administration(instance) as admin:
        found, version = topics.show(admin, name)
    show_one({**row(found), "version": version}, output)


@topic.command("set")
@click.argument("name")
@settings_options
@output_option
@instance_options()
def set_command(
    instance: Instance, name: str, queues: int | None, durability: str | None, body_bytes_max: int | None, output: str
) -> None:
    """Change a topic; what is not named stays. Every proxy follows within a second."""
    settings = TopicSettings(queues, durability, body_bytes_max)
    if not settings.given():
        raise click.UsageError("say what to set: --queues, --durability or --body-bytes-max")
    with administration(instance, changes=True) as admin:
        changed = topics.set_topic(admin, name, settings)
    show_one(row(changed), output)


@topic.command()
@click.argument("name")
@output_option
@instance_options()
def delete(instance: Instance, name: str, output: str) -> None:
    """Delete a topic's definition: sends and pulls are refused. Stored messages stay until retention takes them."""
    with administration(instance, changes=True) as admin:
        topics.delete(admin, name)
    show_one({"deleted": name}, output)


command = topic
