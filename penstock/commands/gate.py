"""`penstock gate`: what every producer proxy lets through, whatever the topic."""

from typing import Any

import click

from common.admin import gate as verbs
from common.config.definitions import GRADES
from common.config.gate_settings import FEATURES
from penstock.commands.exits import Group
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.output import output_option, show_one
from penstock.commands.rates import rate_options


@click.group(cls=Group)
def gate() -> None:
    """Limits of each producer proxy by itself, and what is switched off by hand. Topics, applications and groups have theirs.

    \b
    penstock gate set --rate-messages 50000
    penstock gate set --grade-off low
    penstock gate show
    """


@gate.command()
@output_option
@instance_options()
def show(instance: Instance, output: str) -> None:
    """Show the settings at work."""
    with administration(instance) as admin:
        show_one(verbs.show(admin).to_value(), output)


@gate.command("set")
@click.option(
    "--grade-off",
    "grades_off",
    multiple=True,
    type=click.Choice((*GRADES, "")),
    help="Refuse topics of this grade; repeatable, replaces the list. An empty one: none.",
)
@click.option(
    "--feature-off",
    "features_off",
    multiple=True,
    type=click.Choice((*FEATURES, "")),
    help="Refuse messages that ask for this; repeatable, replaces the list. An empty one: none.",
)
@click.option(
    "--queue-ms", type=click.IntRange(10, 10_000), help="What an append may take before overload.  [new: 250]"
)
@rate_options("Taken", "send", "each proxy")[0]
@rate_options("Taken", "send", "each proxy")[1]
@output_option
@instance_options()
def set_command(instance: Instance, output: str, **given: Any) -> None:
    """Change the settings; what is not named stays. Every producer proxy follows within a second."""
    for name in ("grades_off", "features_off"):
        given[name] = tuple(filter(None, given[name])) if given[name] else None
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        raise click.UsageError("say what to set, such as --rate-messages; --help shows all")
    with administration(instance, changes=True) as admin:
        changed = verbs.set_gate(admin, **named)
    show_one(changed.to_value(), output)


command = gate
