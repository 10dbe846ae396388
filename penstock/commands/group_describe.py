"""`penstock group describe`: everything about one group: settings, position and lag per queue, dead letters."""

from typing import Any

import click

from common.admin import groups
from common.config.errors import ConfigError, EntryNotFound
from common.dead_letters import dead_letter_topic
from engine.client import joined, lookup
from engine.client.admin import AdminError
from penstock.overview.observing import group_lag
from penstock.terminal import completing, engines, figures
from penstock.terminal.exits import NOT_FOUND, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows, show_value

TOPIC_COLUMNS = ("topic", "queues", "lag", "in_flight", "oldest")
QUEUE_COLUMNS = ("topic", "queue", "progress", "end", "lag", "in_flight", "oldest")


@click.command("describe", cls=Command)
@click.argument("name", shell_complete=completing.groups)
@output_option
@instance_options("engine")
def describe(instance: Instance, name: str, output: str) -> None:
    """Show group NAME as a whole: settings, lag and messages in flight per topic, dead letters.

    Of the settings, those that differ from the defaults; of the messages that wait, the age of the oldest one too.
    -o wide shows every queue. A group has no list of members: each message is leased to whoever pulls, at any proxy.
    """
    settings = settings_of(instance, name)
    try:
        answers = engines.ask_all(instance, "lag", group=name, detail=True)
    except CommandError as error:
        if error.exit_code != NOT_FOUND or settings is None:
            raise
        answers = {}
    homes = list(instance.engines())
    by_home = {home: answer["queues"] for home, answer in answers.items()}
    rows = joined.rows_of_queues(by_home, homes, placed=instance.placed_topics(homes))
    found = described(name, settings, rows)
    found["dead_letters"] = dead_letters_of(instance, name)
    if is_for_scripts(output):
        show_value(found, output)
    else:
        show(found, wide=output == "wide")


def settings_of(instance: Instance, name: str) -> dict[str, Any] | None:
    """The settings of the group's definition that differ from the defaults; None: it has no definition."""
    try:
        with administration(instance) as admin:
            found, _ = groups.show(admin, name)
            plain = type(found)(name).to_value()
            own = {key: value for key, value in found.to_value().items() if value != plain.get(key)}
            return {**own, "paused": found.paused}
    except EntryNotFound:
        return None
    except (ConfigError, CommandError) as error:
        click.echo(f"warning: the configuration cannot be read: {error}", err=True)
        return None


def described(name: str, settings: dict[str, Any] | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The facts as JSON values, from the rows of all queues."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"], []).append(row)
    topics = [
        {
            "topic": topic, "queues": len(queues), "lag": group_lag(queues).messages,
            "in_flight": group_lag(queues).in_flight, "oldest_s": group_lag(queues).oldest_s,
        }
        for topic, queues in sorted(by_topic.items())
    ]  # fmt: skip
    lag = group_lag(rows)
    return {
        "group": name, "is_defined": settings is not None, "settings": settings or {}, "has_pulled": bool(rows),
        "lag": lag.messages, "in_flight": lag.in_flight, "oldest_s": lag.oldest_s,
        "lag_bytes": sum(row.get("lag_bytes", 0) for row in rows), "topics": topics, "queues": rows,
    }  # fmt: skip


def dead_letters_of(instance: Instance, name: str) -> int:
    """How many are stored; 0 while the engines know of none."""
    try:
        with engines.connected(instance, for_reads=True) as links:
            count = 0
            for link in links.values():
                try:
                    count += sum(end - first for first, end in lookup.bounds(link, dead_letter_topic(name)).values())
                except AdminError:
                    continue  # this engine has none
            return count
    except CommandError:
        return 0


def show(found: dict[str, Any], *, wide: bool) -> None:
    settings = {key: value for key, value in found["settings"].items() if value is not False}
    state = "paused" if settings.get("paused") else "pulls" if found["has_pulled"] else "has never pulled"
    show_one(
        {
            "group": found["group"],
            "state": state,
            "defined": "yes" if found["is_defined"] else "no: all settings have their defaults",
            **({"settings": ", ".join(f"{key}={value}" for key, value in settings.items())} if settings else {}),
            "lag": f"{found['lag']:,} messages, about {figures.size(found['lag_bytes'])}",
            "in flight": figures.count(found["in_flight"]),
            "oldest": figures.duration(found["oldest_s"]) if found["lag"] or found["in_flight"] else "-",
            "dead letters": figures.count(found["dead_letters"]),
        },
        "table",
    )
    rows = found["queues"] if wide else found["topics"]
    if rows:
        click.echo()
        shown = [figures.lag_row({"oldest_s": row.get("lag_s"), **row}) for row in rows]
        show_rows(shown, QUEUE_COLUMNS if wide else TOPIC_COLUMNS, "table")
