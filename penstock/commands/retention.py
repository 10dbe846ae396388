"""`penstock retention`: why old messages are kept, and a clock that an operator accepts."""

from typing import Any

import click

from penstock.terminal.engines import ask_all
from penstock.terminal.exits import Command
from penstock.terminal.instance import Instance, instance_options, note
from penstock.terminal.output import output_option, show_rows

COLUMNS = ["broker_group", "disk", "free_mib", "clock_ahead_s", "kept_because"]


@click.group("retention")
def retention() -> None:
    """Show the disk and why old messages are kept; accept an engine's clock."""


@retention.command(cls=Command)
@output_option
@instance_options("engine")
def show(instance: Instance, output: str) -> None:
    """Show each engine's disk, and the reason why it keeps old messages, if there is one."""
    show_rows([_row(name, answer) for name, answer in ask_all(instance, "status").items()], COLUMNS, output)


def _row(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    disk, held = answer["disk"], answer["retention"]
    return {
        "broker_group": name,
        "disk": disk["level"],
        "free_mib": disk["free_bytes"] >> 20,
        "clock_ahead_s": held["clock_ahead_ms"] // 1000,
        "kept_because": held["held"],
    }


@retention.command("accept-clock", cls=Command)
@output_option
@instance_options("engine")
def accept_clock(instance: Instance, output: str) -> None:
    """Let messages grow old by the wall clock as it is. Without this, a clock that was set ahead counts once as much
    time has passed as it skipped. Messages that are too old by the new time are deleted."""
    answers = ask_all(instance, "accept_clock")
    rows = [{"broker_group": name, "accepted_s": answer["accepted_ms"] // 1000} for name, answer in answers.items()]
    for row in rows:
        note(instance, "accept-clock", "engine", row["broker_group"], None, {"accepted_s": row["accepted_s"]})
    show_rows(rows, ["broker_group", "accepted_s"], output)


command = retention
