"""Topics that the engine has. Each was created by its first message, with an entry of its own or in a family."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import click

from engine.client.admin import AdminClient
from penstock.terminal.engines import connected
from penstock.terminal.exits import CommandError
from penstock.terminal.instance import Instance

PAGE = 1_000  # the engine serves nothing else while it reads a page


def auto_created(
    instance: Instance, prefix: str = "", after: str = "", limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of id, name and queues by name, read page by page. Raises CommandError."""
    with connected(instance) as engines:
        pages = [_pages(engine, prefix, after, limit) for engine in engines.values()]
        yield from islice(merged(pages) if len(pages) > 1 else pages[0], limit)


def merged(pages: Sequence[Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """One row per name, over all broker groups. Each group has its own id for the topic, so the row has none."""
    rows = heapq.merge(*pages, key=itemgetter("name"))
    for name, same in groupby(rows, key=itemgetter("name")):
        yield {"name": name, "id": None, "queues": max(row["queues"] for row in same)}


def _pages(engine: AdminClient, prefix: str, after: str, left: int | None) -> Iterator[dict[str, Any]]:
    while left is None or left > 0:
        wanted = PAGE if left is None else min(PAGE, left)
        page = engine.ask("topics", prefix=prefix, after=after, limit=wanted)["topics"]
        yield from page
        if len(page) < wanted:
            return
        after = page[-1]["name"]
        left = None if left is None else left - len(page)


def auto_created_if_reachable(instance: Instance, prefix: str) -> Iterator[str]:
    """The names of the topics that the engine has; none, and a warning, when an engine cannot be reached."""
    try:
        yield from (row["name"] for row in auto_created(instance, prefix))
    except CommandError as error:
        click.echo(f"warning: the engine could not be asked which topics exist: {error}", err=True)
