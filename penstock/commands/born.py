"""Topics that the engine has: born by their first message, whatever defined them."""

from collections.abc import Iterator
from typing import Any

import click

from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.commands.exits import CommandError, code_for_contract
from penstock.commands.instance import Instance

PAGE = 1_000  # the engine serves nothing else while it reads a page


def born(instance: Instance, prefix: str = "", after: str = "", limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows of id, name and queues by name, asked for page by page. Raises CommandError, OSError."""
    try:
        with AdminClient(instance.address("engine"), instance.cluster_key()) as engine:
            yield from _pages(engine, prefix, after, limit)
    except AdminError as error:
        raise CommandError(f"engine: {error}", code_for_contract(error.code)) from error
    except LinkError as error:
        raise CommandError(f"engine: {error}") from error


def _pages(engine: AdminClient, prefix: str, after: str, left: int | None) -> Iterator[dict[str, Any]]:
    while left is None or left > 0:
        wanted = PAGE if left is None else min(PAGE, left)
        page = engine.ask("topics", prefix=prefix, after=after, limit=wanted)["topics"]
        yield from page
        if len(page) < wanted:
            return
        after = page[-1]["name"]
        left = None if left is None else left - len(page)


def born_if_reachable(instance: Instance, prefix: str) -> Iterator[str]:
    """Names; none, with a warning, when the engine cannot be asked."""
    try:
        yield from (row["name"] for row in born(instance, prefix))
    except (CommandError, OSError) as error:
        click.echo(f"warning: the engine was not asked which topics exist: {error}", err=True)
