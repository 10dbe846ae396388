"""Commands that become one process of Penstock."""

import os
import sys

import click

from penstock.up.plan import module_command


def process_command(name: str, module: str) -> click.Command:
    """A command that passes all its arguments, `--help` too, to the module's main.

    By exec, not by import: gevent must patch before other modules are loaded, and the process keeps one name and pid.
    """

    @click.command(
        name, context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        sys.stdout.flush()
        command_line = [*module_command(module), *arguments]
        os.execv(command_line[0], command_line)

    return command
