"""Options of lists that are shown page by page, in the order of names."""

from typing import Any

import click


def page_options(command: Any) -> Any:
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(1, 100_000),
            default=1000,
            metavar="N",
            help="Show at most N records, by name (default 1000).",
        ),
        click.option("--after", default="", metavar="NAME", help="Show names after NAME: the next page."),
        click.option("--prefix", default="", metavar="PREFIX", help="Show only names that begin with PREFIX."),
    ):
        command = option(command)
    return command
