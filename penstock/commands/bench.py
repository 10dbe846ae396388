"""`penstock bench`: generate load on a running Penstock, or on one started for it."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import instance
from bench.errors import BenchError, InstanceError
from bench.generator import require_native
from bench.measure import measure
from bench.outcome import Outcome
from bench.report import line, machine, table
from bench.settings import DURABILITIES, MODES, ORDERS, SPACINGS, LoadSettings
from bench.workloads import NAMES, load
from penstock.terminal.exits import FAILED, UNAVAILABLE, Command, CommandError

DEFAULTS = LoadSettings()
# option → the setting that it sets, where the names differ
SETTING_OF = {"warmup": "warmup_s", "timeout": "timeout_s", "ack": "acknowledge", "pattern": "topic_pattern"}


def number(name: str, kind: Any, text: str) -> Any:
    """An option with the setting's default; without it a named workload keeps its own value."""
    default = getattr(DEFAULTS, SETTING_OF.get(name, name))
    return click.option(f"--{name.replace('_', '-')}", type=kind, default=None, help=f"{text} (default {default}).")


@click.command("bench", cls=Command)
@click.argument("what", metavar=f"[{'|'.join(MODES)}|WORKLOAD]", default="send", type=click.Choice([*MODES, *NAMES]))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Use the running `penstock up` of data directory DIR (default: start one and stop it afterwards).",
)
@number("connections", int, "Use this many producer connections, with one call in flight each")
@number("batch", int, "Send this many messages per call")
@number("size", int, "Send bodies of this many bytes")
@number("topics", int, "Use this many topics")
@number("pattern", str, "Name topics by this pattern; %d is the number")
@number("queues", int, "Create topics with this many queues")
@number("keys", int, "Use this many distinct keys; 0: no keys")
@number("durability", click.Choice(list(DURABILITIES)), "Ask for this durability")
@number("seconds", float, "Measure for this many seconds")
@number("warmup", float, "Run this many seconds before the measurement")
@number(
    "rate",
    float,
    "Send this many messages per second in an open loop, with latency from the planned time; 0: closed loop",
)
@number("spacing", click.Choice(SPACINGS), "Space the planned times in this way")
@number("consumers", int, "Use this many pull connections, in modes pull and both")
@number("group", str, "Pull as this group")
@number("order", click.Choice(ORDERS), "Create the group with this order; it must not exist")
@number("max_messages", int, "Pull at most this many messages per call")
@number("wait_ms", int, "Let a pull wait this many milliseconds")
@number("fill", int, "Send this many messages before mode pull")
@number("timeout", float, "Stop after this many seconds without an answer")
@number("seed", int, "Use this seed for topics, keys and planned times")
@click.option("--ack/--no-ack", default=None, help="Acknowledge messages with the next pull (default), or not.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(what: str, data: Path | None, output: str, **options: Any) -> None:
    """Generate load and measure throughput, latency percentiles and the CPU time of each server process.

    \b
    send   send messages (the default)
    pull   fill the topics, then pull all messages
    both   send, pull and acknowledge at the same time
    or the name of a workload; other options then change its settings.

    Exit codes: 0 done, 1 failed or unexpected answers.
    """
    try:
        require_native()
        name, settings = choose(what, options)
        with nullcontext(instance.running(data)) if data else instance.own() as served:
            outcome = measure(name, settings, served, lambda text: click.echo(text, err=True))
    except BenchError as fault:
        raise CommandError(str(fault), UNAVAILABLE if isinstance(fault, InstanceError) else FAILED) from fault
    show(outcome, output)
    if outcome.complaints:
        sys.exit(1)


def choose(what: str, options: dict[str, Any]) -> tuple[str, LoadSettings]:
    """The workload or mode, changed by the options."""
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
