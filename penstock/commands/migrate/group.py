"""`penstock migrate`: the group of its commands."""

import click

from penstock.commands.migrate import (
    abort,
    cut,
    divergence,
    fence,
    forget_journal,
    inventory,
    plan,
    positions,
    rehearse,
    report,
    resume,
    retire,
    rollback,
    soak,
    start,
    status,
    verify,
)
from penstock.terminal.exits import CommandGroup


@click.group(cls=CommandGroup)
def command() -> None:
    """Move topics between a Kafka cluster and the engine, without loss and with a way back. See docs/migration.md.

    A plan moves its topics: planned → copying → verified → fenced → cut → soaking → retired. Each command may be
    stopped and resumed.

    \b
    penstock migrate inventory main
    penstock migrate plan shop.yaml
    penstock migrate start shop
    penstock migrate status shop
    penstock migrate cut shop --dry-run
    """


for _each in (
    inventory, plan, start, status, verify, divergence, positions, fence, cut, soak, rollback, retire, abort, resume,
    report, rehearse, forget_journal,
):  # fmt: skip
    command.add_command(_each.command)
