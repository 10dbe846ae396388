"""The state of a whole deployment, on any number of machines: what `status --config URL` shows."""

import time
from typing import Any

import click

from common.admin import members
from common.config.process_report import OPS_PORT
from common.config.reported_process import parse_name
from common.config.store import ConfigStore
from penstock.overview.observing import Observation, ProcessPlace, observe, rates_between, total_lag
from penstock.terminal import figures
from penstock.terminal.exits import CommandError
from penstock.terminal.instance import Instance, administration
from penstock.terminal.output import show_rows

PROCESS_COLUMNS = ("process", "version", "up", "memory", "state", "in/s", "out/s")
WIDE_COLUMNS = (*PROCESS_COLUMNS, "machine", "pid", "reported", "configuration")
ENGINE_COLUMNS = ("engine", "role", "log", "disk_free", "topics", "groups", "dead_letters")
GROUP_COLUMNS = ("group", "lag", "in_flight", "oldest")
GROUPS_SHOWN = 10


def places_of(store: ConfigStore) -> list[ProcessPlace]:
    """The processes in contact with the configuration store."""
    found = []
    for name, report in sorted(store.applied().items()):
        place = parse_name(name)
        if place is not None:
            host, port = place.address
            found.append(ProcessPlace(name, place.kind, host, port, place.machine, report.version.get(OPS_PORT, 0)))
    return found


def key_or_reason(instance: Instance) -> tuple[bytes | None, str]:
    """The admin key, or why there is none."""
    try:
        return instance.admin_key(), ""
    except CommandError as error:
        return None, str(error)


def gather(instance: Instance, seconds: float) -> dict[str, Any]:
    """The state as JSON values.

    Args:
        seconds: time between two looks at the counters, from which rates come; 0: no rates.
    """
    with administration(instance) as admin:
        states, places, version = members.states(admin), places_of(admin.store), admin.store.version()
    key, reason = key_or_reason(instance)
    before = observe(places, None) if seconds else None
    if before is not None:
        time.sleep(max(0.0, before.at_s + seconds - time.monotonic()))
    seen = observe(places, key)
    rates = rates_between(before, seen)
    by_name = {place.name: place for place in places}
    return {
        "config": instance.config(),
        "version": version,
        "processes": [process(state, by_name.get(state["name"]), seen, rates) for state in states],
        "engines": [engine(name, seen) for name in seen.engines],
        "engines_fault": reason,
        "groups": [
            {"group": name, "lag": lag.messages, "in_flight": lag.in_flight, "oldest_s": lag.oldest_s}
            for name, lag in sorted(total_lag(seen).items(), key=lambda item: (-item[1].messages, item[0]))
        ],
        "groups_not_asked": sum(len(each.groups) - len(each.lag) for each in seen.engines.values()),
    }


def process(
    state: dict[str, Any], place: ProcessPlace | None, seen: Observation, rates: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """One process: what it reports to the configuration, and what its pages tell."""
    pages = seen.pages.get(state["name"])
    started = pages.metrics.get("process_start_time_seconds") if pages else None
    memory = pages.metrics.get("process_resident_memory_bytes") if pages else None
    own = rates.get(state["name"], {})
    return {
        **state,
        "kind": place.kind if place else state["name"].partition("@")[0],
        "machine": place.machine if place else "",
        "version": pages.version if pages else "",
        "up_s": None if started is None else round(time.time() - started, 1),
        "memory_bytes": None if memory is None else int(memory),
        "fault": pages.fault if pages else "no contact to the configuration store",
        "notes": dict(pages.notes) if pages else {},
        "in_per_s": own.get("sent_per_s", own.get("stored_per_s")),
        "out_per_s": own.get("delivered_per_s"),
    }


def engine(name: str, seen: Observation) -> dict[str, Any]:
    """One engine: its role, log, disk and dead letters."""
    facts = seen.engines[name]
    disk = facts.status.get("disk", {})
    return {
        "name": name,
        "fault": facts.fault,
        "broker_group": facts.broker_group,
        "role": "" if facts.fault else "master" if facts.leads else "slave",
        "end_position": facts.status.get("end_position"),
        "log_bytes": facts.status.get("log_bytes"),
        "disk_level": disk.get("level"),
        "disk_free_bytes": disk.get("free_bytes"),
        "disk": disk.get("sentence", ""),
        "topics": facts.topics if facts.leads else None,
        "groups": len(facts.groups) if facts.leads else None,
        "dead_letters_since_start": facts.status.get("dead_letters"),
    }


def is_well(state: dict[str, Any]) -> bool:
    """Whether every process is in contact, current and ready."""
    return not state["engines_fault"] and all(word(each) == "ready" for each in state["processes"])


def word(each: dict[str, Any]) -> str:
    if each["state"] != "current":
        return str(each["state"])
    return "ready" if not each["fault"] else "not ready" if each["version"] else "unseen"


def show(state: dict[str, Any], *, wide: bool) -> None:
    """Tables within 80 columns, or all that is known with `wide`; then a line per fault and note."""
    rows = state["processes"]
    click.echo(f"configuration {state['config']}\n")
    show_rows([_process_row(each) for each in rows], WIDE_COLUMNS if wide else PROCESS_COLUMNS, "table")
    if state["engines"]:
        click.echo()
        show_rows([_engine_row(each) for each in state["engines"]], ENGINE_COLUMNS, "table")
    if state["groups"]:
        click.echo()
        shown = state["groups"] if wide else state["groups"][:GROUPS_SHOWN]
        show_rows([figures.lag_row(each) for each in shown], GROUP_COLUMNS, "table")
        hidden = len(state["groups"]) - len(shown) + state["groups_not_asked"]
        if hidden:
            click.echo(f"{hidden:,} more groups: -o wide shows them")
    for line in remarks(state):
        click.echo(line)


def remarks(state: dict[str, Any]) -> list[str]:
    """What is wrong, and what an operator should know, a line each."""
    lines = [f"engines are not asked: {state['engines_fault']}"] if state["engines_fault"] else []
    for each in state["processes"]:
        if each["fault"]:
            lines.append(f"{each['name']}: {each['fault']}")
        if each["behind"]:
            lines.append(f"{each['name']}: has not applied the newest {', '.join(each['behind'])}")
        lines += [f"note: {each['name']}: {subject}: {text}" for subject, text in each["notes"].items()]
    for each in state["engines"]:
        if each["fault"]:
            lines.append(f"{each['name']}: {each['fault']}")
        elif each["disk_level"] != "fine":
            lines.append(f"{each['name']}: disk {each['disk_level']}: {each['disk']}")
    return [""] * bool(lines) + lines


def _process_row(each: dict[str, Any]) -> dict[str, Any]:
    return {
        **each,
        "process": each["name"].partition("/")[0].replace("_proxy@", "@"),
        "up": figures.duration(each["up_s"]),
        "memory": figures.size(each["memory_bytes"]),
        "state": word(each),
        "in/s": figures.rate(each["in_per_s"]),
        "out/s": figures.rate(each["out_per_s"]),
        "reported": f"{figures.duration(each['reported_s_ago'])} ago",
        "configuration": f"behind in {', '.join(each['behind'])}" if each["behind"] else "current",
    }


def _engine_row(each: dict[str, Any]) -> dict[str, Any]:
    group = "" if each["broker_group"] in ("", "main") else f"{each['broker_group']} "
    return {
        **each,
        "engine": each["name"].partition("/")[0].removeprefix("engine@"),
        "role": group + (each["role"] or "no answer"),
        "log": figures.size(each["end_position"]),
        "disk_free": figures.size(each["disk_free_bytes"]),
        "topics": figures.count(each["topics"]),
        "groups": figures.count(each["groups"]),
        "dead_letters": figures.count(each["dead_letters_since_start"]),
    }
