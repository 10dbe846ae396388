"""`penstock topic stats`: what a topic holds, how fast it grows, and who lags on it."""

import time
from typing import Any

import click

from common.admin import families, topics
from common.config.errors import EntryNotFound
from common.contract import Code
from engine.client import lookup
from engine.client.admin import AdminError
from engine.client.lookup import Link, Stored
from engine.link.read import ReadPosition
from penstock.overview.observing import group_lag
from penstock.terminal import completing, engines, figures
from penstock.terminal.exits import Command
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows, show_value

QUEUE_COLUMNS = ("queue", "first", "end", "messages", "oldest", "newest")
GROUP_COLUMNS = ("group", "lag", "in_flight", "oldest")
SAMPLED = 20
GROUPS_S_MAX = 2.0


@click.command("stats", cls=Command)
@click.argument("name", shell_complete=completing.topics)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 60),
    default=1.0,
    metavar="S",
    help="Count messages for S seconds to show the rate; 0: no rate (default 1).",
)
@output_option
@instance_options("engine")
def stats(instance: Instance, name: str, seconds: float, output: str) -> None:
    """Show how many messages topic NAME holds, their age and size, how many come per second, and which groups lag.

    The size is the mean of the newest messages of each queue. -o wide shows every queue. Groups are asked for two
    seconds at most; how many had no turn is said.
    """
    with engines.joined(instance) as link:
        try:
            found = gather(link, name, seconds)
        except AdminError as error:
            if error.code != Code.UNKNOWN_TOPIC or not is_defined(instance, name):
                raise
            found = figures_of(name, [], [], None)  # an engine makes a topic at its first message
    found["groups"], found["groups_not_asked"] = groups_of(instance, name)
    if is_for_scripts(output):
        show_value(found, output)
    else:
        show(found, wide=output == "wide")


def gather(link: Link, topic: str, seconds: float) -> dict[str, Any]:
    """The figures of the stored messages."""
    before, began = lookup.bounds(link, topic), time.monotonic()
    if seconds:
        time.sleep(seconds)
    bounds, took_s = lookup.bounds(link, topic), time.monotonic() - began
    rows, sizes = [], []
    for queue, (first, end) in bounds.items():
        oldest = lookup.browse(link, topic, queue, first, 1) if first < end else []
        newest = newest_of(link, topic, queue, first, end)
        sizes += [len(each.message) for each in newest]
        rows.append(
            {
                "queue": queue, "first": first, "end": end, "messages": end - first,
                "oldest_ms": oldest[0].stored_at_ms if oldest else None,
                "newest_ms": newest[-1].stored_at_ms if newest else None,
            }
        )  # fmt: skip
    grown = sum(end - before.get(queue, (0, 0))[1] for queue, (_, end) in bounds.items())
    return figures_of(topic, rows, sizes, round(grown / took_s, 1) if seconds else None)


def figures_of(topic: str, rows: list[dict[str, Any]], sizes: list[int], per_s: float | None) -> dict[str, Any]:
    return {
        "topic": topic,
        "messages": sum(row["messages"] for row in rows),
        "stored_in_all": sum(row["end"] for row in rows),
        "oldest_ms": min((row["oldest_ms"] for row in rows if row["oldest_ms"] is not None), default=None),
        "newest_ms": max((row["newest_ms"] for row in rows if row["newest_ms"] is not None), default=None),
        "bytes_mean": round(sum(sizes) / len(sizes)) if sizes else None,
        "per_s": per_s,
        "queues": rows,
    }


def is_defined(instance: Instance, name: str) -> bool:
    """Whether the topic has a definition of its own or one of a family."""
    with administration(instance) as admin:
        try:
            topics.show(admin, name)
        except EntryNotFound:
            return families.defining(admin, name) is not None
    return True


def newest_of(link: Link, topic: str, queue: int, first: int, end: int) -> list[Stored]:
    if first >= end:
        return []
    return list(lookup.stream(link, [ReadPosition(topic, queue, offset=max(first, end - SAMPLED))]))


def groups_of(instance: Instance, topic: str) -> tuple[list[dict[str, Any]], int]:
    """The groups that have a position on the topic, those with the largest lag first, and how many were not asked."""
    from engine.client import joined
    from engine.client.admin import AdminError

    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    left, end_s = 0, time.monotonic() + GROUPS_S_MAX
    homes = list(instance.engines())
    placed = instance.placed_topics(homes)
    with engines.connected(instance) as links:
        for home, link in links.items():
            for group in link.ask("groups", limit=10_000)["groups"]:
                if time.monotonic() >= end_s:
                    left += 1
                    continue
                try:
                    rows.setdefault(group, {})[home] = link.ask("lag", group=group, topic=topic, detail=True)["queues"]
                except AdminError:
                    continue  # it has no position on this topic there
    found = []
    for group, answers in rows.items():
        if queues := joined.rows_of_queues(answers, homes, topic, placed):
            lag = group_lag(queues)
            found.append({"group": group, "lag": lag.messages, "in_flight": lag.in_flight, "oldest_s": lag.oldest_s})
    return sorted(found, key=lambda row: (-row["lag"], row["group"])), left


def show(found: dict[str, Any], *, wide: bool) -> None:
    now_ms = time.time() * 1000

    def age(at_ms: int | None) -> str:
        return "-" if at_ms is None else f"{figures.duration(max(0.0, (now_ms - at_ms) / 1000))} ago"

    show_one(
        {
            "topic": found["topic"],
            "messages": figures.count(found["messages"]),
            "stored in all": figures.count(found["stored_in_all"]),
            "queues": f"{len(found['queues'])}, {sum(1 for row in found['queues'] if row['messages'])} with messages",
            "oldest": age(found["oldest_ms"]),
            "newest": age(found["newest_ms"]),
            "mean size": figures.size(found["bytes_mean"]),
            **({} if found["per_s"] is None else {"per second": figures.rate(found["per_s"])}),
        },
        "table",
    )
    if wide:
        click.echo()
        rows = [{**row, "oldest": age(row["oldest_ms"]), "newest": age(row["newest_ms"])} for row in found["queues"]]
        show_rows(rows, QUEUE_COLUMNS, "table")
    if found["groups"]:
        click.echo()
        show_rows([figures.lag_row(row) for row in found["groups"]], GROUP_COLUMNS, "table")
    if found["groups_not_asked"]:
        click.echo(f"{found['groups_not_asked']:,} more groups were not asked: see `penstock group lag NAME`")
