"""`penstock gate`: limits and switches of every producer proxy, for all topics."""

import click

from common.admin import gate as verbs
from common.admin.gate import GateChanges
from penstock.terminal.exits import CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one
from penstock.terminal.setting_options import settings_options


@click.group(cls=CommandGroup)
def gate() -> None:
    """Limit what each producer proxy accepts, and switch grades or features off by hand.

    Topics, applications and groups have limits of their own.

    \b
    penstock gate set --rate-messages 50000
    penstock gate set --grade-off low
    penstock gate show
    """


@gate.command()
@output_option
@instance_options()
def show(instance: Instance, output: str) -> None:
    """Show the current settings."""
    with administration(instance) as admin:
        show_one(verbs.show(admin).to_value(), output)


@gate.command("set")
@settings_options(GateChanges)
@output_option
@instance_options()
def set_command(instance: Instance, output: str, settings: GateChanges) -> None:
    """Change the given settings. Every producer proxy follows within a second."""
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --rate-messages, see --help")
    with administration(instance, changes=True) as admin:
        changed = verbs.set_gate(admin, settings)
    show_one(changed.to_value(), output)


command = gate
