"""`penstock bench`: load a running Penstock, or one started for the purpose."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import instance
from bench.errors import BenchError
from bench.generator import require_native
from bench.measure import measure
from bench.outcome import Outcome
from bench.report import line, machine, table
from bench.settings import DURABILITIES, MODES, ORDERS, SPACINGS, LoadSettings
from bench.workloads import NAMES, load

DEFAULTS = LoadSettings()
# option → the setting that it sets, where the names differ
SETTING_OF = {"warmup": "warmup_s", "timeout": "timeout_s", "ack": "acknowledge", "pattern": "topic_pattern"}


def number(name: str, kind: Any, text: str) -> Any:
    """An option whose default is the setting's; unset it leaves a named workload's value alone."""
    default = getattr(DEFAULTS, SETTING_OF.get(name, name))
    return click.option(f"--{name.replace('_', '-')}", type=kind, default=None, help=f"{text}  [default: {default}]")


@click.command("bench")
@click.argument("what", metavar=f"[{'|'.join(MODES)}|WORKLOAD]", default="send", type=click.Choice([*MODES, *NAMES]))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Load the `penstock up` of this directory; unset: start one and end it afterwards.",
)
@number("connections", int, "Producer connections, one call in flight on each.")
@number("batch", int, "Messages a call.")
@number("size", int, "Bytes of a body.")
@number("topics", int, "How many topics.")
@number("pattern", str, "Name of topic %d.")
@number("queues", int, "Queues of each topic.")
@number("keys", int, "Distinct keys; 0: none.")
@number("durability", click.Choice(list(DURABILITIES)), "What an answer promises.")
@number("seconds", float, "Length of the measured window.")
@number("warmup", float, "Seconds before it.")
@number("rate", float, "Open loop: messages a second, latency from the planned time; 0: closed loop.")
@number("spacing", click.Choice(SPACINGS), "Of planned times.")
@number("consumers", int, "Pull connections, for pull and both.")
@number("group", str, "The consumers' group.")
@number("order", click.Choice(ORDERS), "Of the group, which must be new then.")
@number("max_messages", int, "Of one pull.")
@number("wait_ms", int, "Long poll of a pull.")
@number("fill", int, "Messages to put there before a pull.")
@number("timeout", float, "Seconds without an answer that end the run.")
@number("seed", int, "Of topics, keys and planned times.")
@click.option("--ack/--no-ack", default=None, help="Acknowledge on the next pull.  [default: ack]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(what: str, data: Path | None, output: str, **options: Any) -> None:
    """Load generator: throughput, latency percentiles, CPU of each server process.

    \b
    send   calls of send (the default)
    pull   fill the topics, then drain them by pulls
    both   send, pull and acknowledge at the same time
    or the name of a workload; other options then change its settings.

    Exit codes: 0 done, 1 failed or answers that should not be.
    """
    try:
        require_native()
        name, settings = choose(what, options)
        with nullcontext(instance.running(data)) if data else instance.own() as served:
            outcome = measure(name, settings, served, lambda text: click.echo(text, err=True))
    except BenchError as fault:
        raise click.ClickException(str(fault)) from fault
    show(outcome, output)
    if outcome.complaints:
        sys.exit(1)


def choose(what: str, options: dict[str, Any]) -> tuple[str, LoadSettings]:
    """The workload or mode with what the options change."""
    given = {SETTING_OF.get(name, name): value for name, value in options.items() if value is not None}
    if what in NAMES:
        workload = load(what)
        return workload.name if not given else f"{workload.name}*", replace(workload.settings, **given)
    return what, LoadSettings(mode=what, **given)


def show(outcome: Outcome, output: str) -> None:
    if output == "json":
        click.echo(json.dumps({"machine": machine(), **outcome.as_dict()}, indent=1))
        return
    click.echo(line(outcome))
    Console(width=None if sys.stdout.isatty() else 120).print(table(outcome))
    for complaint in outcome.complaints:
        click.echo(f"bench: {complaint}", err=True)


bench = command
