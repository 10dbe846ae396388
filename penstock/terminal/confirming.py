"""Questions before a command that takes something away. Only a person at a terminal is asked."""

import sys

import click

from common.quoting import escaped

yes_option = click.option("--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked.")


def confirm(question: str, is_sure: bool) -> None:
    """Ask, unless the person is sure or there is no terminal. Raises click.Abort on any other answer than yes."""
    if not is_sure and sys.stdin.isatty():
        click.confirm(escaped(question), abort=True, err=True)
