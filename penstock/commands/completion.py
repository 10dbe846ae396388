"""`penstock completion`: the script by which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

HOW = {
    "bash": 'eval "$(penstock completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(penstock completion zsh)"         # in ~/.zshrc',
    "fish": "penstock completion fish | source         # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL."""
    made = get_completion_class(shell)
    if made is None:
        raise click.ClickException(f"{shell}: completion is not supported: use bash, zsh or fish")
    click.echo(made(context.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
