"""`penstock status`: processes, ports, memory, configuration, topics and lag of a running `up`."""

import json
from pathlib import Path
from typing import Any

import click

from penstock.commands import replicas
from penstock.commands.exits import UNAVAILABLE, Command, CommandError
from penstock.commands.output import output_option, show_rows
from penstock.up.files import read_running
from penstock.up.status import gather


@click.command("status", cls=Command)
@click.option(
    "--data",
    default="./.penstock",
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Show the running `penstock up` of data directory DIR (default ./.penstock).",
)
@output_option
def command(data: Path, output: str) -> None:
    """Show the processes of a running `up`. Exit code 5 when none runs, 1 when a process is not ready."""
    facts = read_running(data)
    if facts is None:
        raise CommandError(f"{data}: no running Penstock: start one with `penstock up --data {data}`", UNAVAILABLE)
    state = gather(facts)
    if "replicas" in facts:
        state["replicas"] = replicas.states(facts)
    if output == "json":
        click.echo(json.dumps(state, indent=1))
    else:
        show(state)
    raise SystemExit(0 if all(each.get("ready", "yes") == "yes" for each in state["processes"]) else 1)


def show(state: dict[str, Any]) -> None:
    rows = [{**each, "configuration": applied_words(each)} for each in state["processes"]]
    show_rows(rows, ["name", "pid", "listen", "ops_port", "ready", "rss_mib", "configuration"], "table")
    click.echo(f"\ndata {state['data']}   configuration {state['config']}   memory {state['rss_mib']} MiB")
    for each in rows:
        for subject, note in each.get("notes", {}).items():
            click.echo(f"note: {each['name']}: {subject}: {note}")
    if "config_error" in state:
        click.echo(f"configuration store: {state['config_error']}")
    for name, engine in state.get("broker_groups", {"": state["engine"]}).items():
        if name:
            click.echo(f"\nbroker group {name}")
        show_engine(engine)
    for name, group in state.get("replicas", {}).items():
        click.echo(f"\nreplicas of {name}: {replicas.words(group)}")
    isolated = [
        f"{proxy}: {group} {value}"
        for proxy, groups in state["breakers"].items()
        for group, value in groups.items()
        if value != "closed"
    ]
    if isolated:
        click.echo(f"\ncircuit breakers not closed: {'; '.join(isolated)}")


def applied_words(process: dict[str, Any]) -> str:
    if "applied" not in process:
        return ""
    numbers = ", ".join(f"{kind} {number}" for kind, number in process["applied"].items() if number)
    return f"behind in {', '.join(process['behind'])}" if process["behind"] else f"current ({numbers or 'empty'})"


def show_engine(engine: dict[str, Any]) -> None:
    if "error" in engine:
        click.echo(f"engine: {engine['error']}")
        return
    status = engine["status"]
    more = " or more" if engine["topics_more"] else ""
    words = f"log {status['end_position']:,} bytes, {status['durable_position']:,} on disk, epoch {status['epoch']}"
    words += f"; look-up by {' and '.join(status.get('look_up', [])) or 'reading'}"
    click.echo(f"{words}; {engine['topics']:,}{more} topics, {len(engine['group_lag'])} groups")
    if status["disk"]["level"] != "fine":
        click.echo(f"disk {status['disk']['level']}: {status['disk'].get('sentence', '')}")
    if held := status.get("retention", {}).get("held"):
        click.echo(f"retention: {held}")
    if engine["group_lag"]:
        click.echo()
        rows = [{"group": name, "lag": f"{lag:,}"} for name, lag in engine["group_lag"].items()]
        show_rows(rows, ["group", "lag"], "table")
