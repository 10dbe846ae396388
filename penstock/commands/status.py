"""`penstock status`: the processes of a running `up`, or those of a whole deployment on several machines."""

from typing import Any

import click

from common.quoting import escaped
from penstock.commands import cluster_status, replicas
from penstock.terminal import figures
from penstock.terminal.exits import UNAVAILABLE, Command, CommandError
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_rows, show_value
from penstock.up.files import read_running
from penstock.up.status import gather

COLUMNS = ("name", "pid", "listen", "ready", "up", "restarts", "memory", "config")
WIDE_COLUMNS = (*COLUMNS, "ops_port", "version")
LAG_SHOWN = 10


@click.command("status", cls=Command)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 60),
    default=1.0,
    metavar="S",
    help="Of a whole deployment: count messages for S seconds to show rates; 0: no rates (default 1).",
)
@output_option
@instance_options("engine")
def command(instance: Instance, seconds: float, output: str) -> None:
    """Show the processes of a running `up`, or with --config or a context the whole deployment on all its machines.

    Of a deployment: the processes that the configuration expects, whether each has applied its newest version, and, as
    far as its pages for operators can be reached from here, version, time since its start, memory and messages per
    second; engines with role, log, disk and dead letters since their start; the lag of groups.

    Exit code 5 when nothing runs or the configuration is unavailable, 1 when a process is not ready.
    """
    if instance.config_url is not None:
        state = cluster_status.gather(instance, seconds)
        show_state(state, output, cluster_status.show)
        raise SystemExit(0 if cluster_status.is_well(state) else 1)
    facts = read_running(instance.data)
    if facts is None:
        raise CommandError(
            f"{instance.data}: no running Penstock: start one with `penstock up --data {instance.data}`, "
            "or use --config URL",
            UNAVAILABLE,
        )
    state = gather(facts)
    if "replicas" in facts:
        state["replicas"] = replicas.states(facts)
    show_state(state, output, show)
    raise SystemExit(0 if all(each.get("ready", "yes") == "yes" for each in state["processes"]) else 1)


def show_state(state: dict[str, Any], output: str, as_tables: Any) -> None:
    if is_for_scripts(output):
        show_value(state, output)
    else:
        as_tables(state, wide=output == "wide")


def show(state: dict[str, Any], *, wide: bool) -> None:
    """The state of one `up`: tables within 80 columns, or with `wide` all columns and groups."""
    rows = [row(each) for each in state["processes"]]
    show_rows(rows, WIDE_COLUMNS if wide else COLUMNS, "table")
    versions = sorted({each["version"] for each in state["processes"] if each.get("version")})
    click.echo(f"\ndata {state['data']}")
    click.echo(f"configuration {state['config']}")
    click.echo(f"version {', '.join(versions) or 'unknown'}; memory {state['rss_mib']} MiB")
    for each in rows:
        if each["ready"] not in ("yes", "-"):
            click.echo(escaped(f"{each['name']}: not ready: {each['reason']}"))
        for subject, note in each.get("notes", {}).items():
            click.echo(escaped(f"note: {each['name']}: {subject}: {note}"))
    if "config_error" in state:
        click.echo(f"configuration store: {state['config_error']}")
    for name, engine in state.get("broker_groups", {"": state["engine"]}).items():
        if name:
            click.echo(f"\nbroker group {name}")
        show_engine(engine, wide)
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


def row(process: dict[str, Any]) -> dict[str, Any]:
    ready = process.get("ready", "-")
    return {
        **process,
        "ready": ready if ready in ("yes", "-") else "no",
        "reason": ready,
        "up": figures.duration(process.get("up_s")),
        "memory": figures.size(process["rss_mib"] * (1 << 20)),
        "config": applied_words(process),
    }


def applied_words(process: dict[str, Any]) -> str:
    if "applied" not in process:
        return ""
    if process["behind"]:
        return f"behind in {', '.join(process['behind'])}"
    return "current"


def show_engine(engine: dict[str, Any], wide: bool = False) -> None:
    if "error" in engine:
        click.echo(f"engine: {engine['error']}")
        return
    status, disk = engine["status"], engine["status"]["disk"]
    more = " or more" if engine["topics_more"] else ""
    click.echo(
        f"log {status['end_position']:,} bytes, {status['durable_position']:,} on disk, epoch {status['epoch']}; "
        f"disk {disk['level']}, {figures.size(disk.get('free_bytes'))} free"
    )
    click.echo(
        f"look-up by {' and '.join(status.get('look_up', [])) or 'reading'}; {engine['topics']:,}{more} topics, "
        f"{engine.get('groups', len(engine['group_lag'])):,} groups"
    )
    if status.get("dead_letters"):
        click.echo(f"{status['dead_letters']:,} dead letters since the engine's start")
    if disk["level"] != "fine":
        click.echo(f"disk {disk['level']}: {disk.get('sentence', '')}")
    if held := status.get("retention", {}).get("held"):
        click.echo(f"retention: {held}")
    if engine["group_lag"]:
        show_lag(engine, wide)


def show_lag(engine: dict[str, Any], wide: bool) -> None:
    """The groups that lag most, first."""
    click.echo()
    found = sorted(engine["group_lag"].items(), key=lambda item: (-item[1], item[0]))
    shown = found if wide else found[:LAG_SHOWN]
    show_rows([{"group": name, "lag": f"{lag:,}"} for name, lag in shown], ["group", "lag"], "table")
    if hidden := engine.get("groups", len(found)) - len(shown):
        click.echo(f"{hidden:,} more groups{'' if wide else ': -o wide shows them'}")
