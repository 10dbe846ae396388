"""`penstock help`: the help of a command, by its words."""

import click

from penstock.terminal.exits import Command
from penstock.terminal.suggestions import did_you_mean


@click.command("help", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, which may have several words, or the list of commands.

    \b
    penstock help topic create
    """
    above = context.find_root()
    found: click.Command = above.command
    for number, word in enumerate(words):
        below = found.get_command(above, word) if isinstance(found, click.Group) else None
        if below is None:
            names = found.list_commands(above) if isinstance(found, click.Group) else []
            hint = did_you_mean(word, names) or "see `penstock help`"
            raise click.UsageError(f"no such command: penstock {' '.join(words[: number + 1])}: {hint}")
        above = click.Context(below, info_name=word, parent=above)
        found = below
    if isinstance(found, click.Command) and found.add_help_option:
        click.echo(found.get_help(above))
    else:  # a process, which parses its options by itself
        found.main([*words[1:], "--help"], prog_name=f"penstock {words[0]}", standalone_mode=False)
