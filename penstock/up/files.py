"""Facts about a running `up`: DIR/up.json and the --ready-file, the same JSON, replaced atomically."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.up.directory import ADMIN_KEY, CONTROLLER_KEY
from penstock.up.lock import is_held
from penstock.up.ports import CONSOLE, broker_name, engine_name, group_name

if TYPE_CHECKING:  # every command reads the facts
    from penstock.up.child import Child
    from penstock.up.plan import UpPlan

LATER = "later"
"""Name of the process that `up` starts once the configuration asks for it and a LOOK signal has come."""


def describe(plan: "UpPlan", children: "Iterable[Child]") -> dict[str, Any]:
    """Addresses, paths and pids. A child's port is the one that it announced."""
    facts: dict[str, Any] = {}
    pids, ops = {"up": os.getpid()}, {}
    children = list(children)
    for child in children:
        port = child.facts.get("port", plan.ports.get(child.name))
        facts[child.name] = {"host": child.facts.get("host", plan.hosts.of(child.name)), "port": port}
        ops[child.name] = child.facts.get("ops_port", plan.ports.get(f"{child.name}_ops"))
        pids[child.name] = child.pid
    if plan.groups > 1:
        names = [engine_name(number) for number in range(1, plan.groups + 1)]
        facts["broker_groups"] = {group_name(number): name for number, name in enumerate(names, 1)}
    if plan.replicas > 1:
        groups = {group_name(number) if plan.groups > 1 else "main": number for number in range(1, plan.groups + 1)}
        facts["replicas"] = {
            name: [broker_name(number, each) for each in range(1, plan.replicas + 1)] for name, number in groups.items()
        }
    places = {
        "config": plan.config, "cluster_key": str(plan.cluster_key), "admin_key": str(plan.data / ADMIN_KEY),
        "controller_key": str(plan.data / CONTROLLER_KEY), "data": str(plan.data),
    }  # fmt: skip
    if plan.secrets_key is not None:
        places["secrets_key"] = str(plan.secrets_key)
    if plan.later is not None and plan.later.name not in pids:
        places[LATER] = plan.later.name
    restarts = {child.name: child.restarts for child in children}
    return {**facts, "ops": ops, "ops_host": plan.hosts.ops, **places, "pids": pids, "restarts": restarts}


def ops_host(facts: dict[str, Any], name: str) -> str:
    """Host of a process's operator's pages. The console has one port for all; an `up` of before had one host for all."""
    own: str = facts[name]["host"]
    return own if name == CONSOLE else facts.get("ops_host", own)


def write_all(plan: "UpPlan", children: "Iterable[Child]") -> None:
    text = json.dumps(describe(plan, children), indent=1) + "\n"
    for path in filter(None, (plan.data / "up.json", plan.ready_file)):
        write_whole(path, text)


def write_whole(path: Path, text: str) -> None:
    """Replace a file by rename: a reader finds the whole old or new text."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def remove_stale(data: Path, ready_file: Path | None) -> None:
    """Remove the files before a start and after a stop: their addresses are not served then."""
    for path in filter(None, (data / "up.json", ready_file)):
        path.unlink(missing_ok=True)


def read_running(data: Path) -> dict[str, Any] | None:
    """The facts of the `up` that serves this directory now, or None."""
    if not is_held(data):
        return None
    try:
        return json.loads((data / "up.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
