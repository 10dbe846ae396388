"""`penstock filter`: checks of filters without a group."""

import click

from common.filter.expression import read_filter
from common.filter.printing import print_condition
from penstock.terminal.exits import CommandGroup
from penstock.terminal.output import output_option, show_one


@click.group("filter", cls=CommandGroup)
def command() -> None:
    """Check filters of groups. The language: docs/filters.md.

    \b
    penstock filter check "country IN ('DE', 'FR') AND amount >= 100"
    """


@command.command()
@click.argument("text")
@output_option
def check(text: str, output: str) -> None:
    """Check the filter TEXT and show its style and meaning. Nothing is changed."""
    found = read_filter(text)
    show_one({"style": found.style, "meaning": print_condition(found.condition)}, output)
