"""Exit codes, and errors as one line on stderr; an error of a filter has two more lines, which show the place.

0 done · 1 failed · 2 wrong usage or value · 3 not found · 4 conflict with the present state · 5 unavailable, try again
later
"""

import os
from typing import Any

import click

from common.admin.errors import StateConflict
from common.config.errors import EntryNotFound, InvalidEntry, StoreUnavailable, VersionConflict
from common.contract import Code
from common.errors import PenstockError
from common.filter.errors import FilterError
from common.quoting import escaped
from penstock.terminal.pipes import silence_stdout
from penstock.terminal.suggestions import SuggestingGroup, with_hint

FAILED, USAGE, NOT_FOUND, CONFLICT, UNAVAILABLE = 1, 2, 3, 4, 5

CODES: dict[type[Exception], int] = {
    InvalidEntry: USAGE,
    FilterError: USAGE,
    EntryNotFound: NOT_FOUND,
    VersionConflict: CONFLICT,
    StateConflict: CONFLICT,
    StoreUnavailable: UNAVAILABLE,
    ConnectionError: UNAVAILABLE,
    TimeoutError: UNAVAILABLE,
}


class CommandError(Exception):
    """An error with a sentence for the user and an exit code."""

    def __init__(self, sentence: str, exit_code: int = FAILED):
        super().__init__(sentence)
        self.exit_code = exit_code


def code_for_contract(code: int) -> int:
    """The exit code for a result code of the contract."""
    if code in (102, 103):
        return NOT_FOUND
    if 100 <= code < 200:
        return USAGE if code in (100, 101, Code.OFFSET_OUT_OF_RANGE) else FAILED
    return UNAVAILABLE


class Command(click.Command):
    """A command that ends with one of these codes and never with a traceback (except under PENSTOCK_DEBUG)."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.BadParameter as error:
            raise with_hint(error) from error

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except CommandError as error:
            _end(context, error, error.exit_code)
        except (PenstockError, ConnectionError, TimeoutError) as error:
            if isinstance(error, BrokenPipeError):  # the reader of our output has closed it, and wants no more
                silence_stdout()
                context.exit(0)
            _end(context, error, next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED))


def _end(context: click.Context, error: Exception, code: int) -> None:
    if os.environ.get("PENSTOCK_DEBUG"):
        raise error
    click.echo(f"{context.command_path}: {escaped(' '.join(str(error).split()))}", err=True)
    if isinstance(error, FilterError):
        click.echo(error.pointer(), err=True)
    context.exit(code)


class CommandGroup(SuggestingGroup):
    command_class = Command
