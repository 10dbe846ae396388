"""`penstock pipeline`: the group of its commands."""

from importlib import import_module
from importlib.util import find_spec

import click

from penstock.terminal.exits import Command, CommandGroup

MODULES = ("pyspark", "pyarrow")
WITHOUT_SPARK = "the extra `spark` is not installed: pip install penstock[spark]"


@click.group(cls=CommandGroup)
def command() -> None:
    """Archive, replay and compare topics on Spark. See docs/spark.md.

    A job runs on this machine, or on the cluster that --master names.

    \b
    penstock pipeline archive run /srv/archive orders --endpoint HOST:PORT --credential FILE
    penstock pipeline archive verify /srv/archive
    penstock pipeline replay /srv/archive orders orders-again --endpoint HOST:PORT --credential FILE
    penstock pipeline reconcile archive /srv/archive orders --report DIR --endpoint HOST:PORT --credential FILE
    """


def _missing(name: str) -> click.Command:
    """A command that tells what to install."""

    @click.command(cls=Command, name=name, context_settings={"ignore_unknown_options": True}, help=WITHOUT_SPARK)
    @click.argument("words", nargs=-1)
    def missing(words: tuple[str, ...]) -> None:
        raise click.UsageError(WITHOUT_SPARK)

    return missing


JOBS = ("archive", "replay", "reconcile", "dlq", "traffic")
for _job in JOBS:
    if all(find_spec(name) for name in MODULES):
        command.add_command(import_module(f"penstock.commands.pipeline.{_job}").command)
    else:
        command.add_command(_missing(_job))
