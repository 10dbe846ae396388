"""The state of a running `up`: processes by /proc and their operator's pages, engines by their answers."""

import http.client
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.config import open_store
from common.config.store import ConfigStore
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.overview.pages import BUILD
from penstock.up.files import ops_host
from penstock.up.ops_page import PAGE_S_MAX

PROXIES = ("producer_proxy", "consumer_proxy")
BREAKER_STATES = {"0.0": "closed", "1.0": "half-open", "2.0": "open"}
BREAKER_LINE = re.compile(r'penstock_breaker_state\{broker_group="([^"]+)"\} (\S+)')
GROUPS_MAX = 10_000
LAG_S_MAX = 2.0  # groups whose turn has not come by then are counted only
TOPICS_MAX = 10_000


def gather(facts: dict[str, Any]) -> dict[str, Any]:
    """The whole state as JSON values. A part that does not answer is reported so; the others are shown."""
    engines = list(facts.get("broker_groups", {"main": "engine"}).values())
    replicas = facts.get("replicas", {})
    more = [name for names in replicas.values() for name in names if name not in engines]
    more += ["controller"] if replicas else []
    more += [name for name in ("kafka_bridge", "console") if name in facts]
    processes = [process(name, facts) for name in ("up", *PROXIES, *engines, *more)]
    state: dict[str, Any] = {"data": facts["data"], "config": facts["config"], "processes": processes}
    state["rss_mib"] = round(sum(each["rss_mib"] for each in processes), 1)
    try:
        store = open_store(facts["config"])
        try:
            add_applied(processes, store)
        finally:
            store.close()
    except Exception as fault:  # any store may fail in its own way
        state["config_error"] = str(fault)
    state["engine"] = engine_or_error(facts, replicas.get("main", ["engine"]))
    if "broker_groups" in facts:
        state["broker_groups"] = {
            name: engine_or_error(facts, replicas.get(name, [process]))
            for name, process in facts["broker_groups"].items()
        }
    state["breakers"] = {name: breakers(facts, name) for name in PROXIES}
    return state


def engine_or_error(facts: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The state of the one of these brokers that leads."""
    faults = []
    for name in names:
        try:
            return engine(facts, name)
        except (OSError, LinkError, AdminError) as fault:
            faults.append(f"{type(fault).__name__}: {fault}")
    return {"error": "; ".join(faults)}


def breakers(facts: dict[str, Any], name: str) -> dict[str, str]:
    """A proxy's circuit breaker of each broker group: closed, half-open or open."""
    page_text = page(ops_host(facts, name), facts["ops"][name], "/metrics", shown="all")
    return {group: BREAKER_STATES.get(value, value) for group, value in BREAKER_LINE.findall(page_text)}


def process(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    pid = facts["pids"][name]
    shown = {"name": name, "pid": pid, "rss_mib": round(rss_bytes(pid) / (1 << 20), 1), "up_s": up_s(pid)}
    if name in facts.get("restarts", {}):
        shown["restarts"] = facts["restarts"][name]
    if name in facts["ops"]:
        place = facts[name]
        found = page(ops_host(facts, name), facts["ops"][name], "/readyz", shown="all")
        ready, notes = readiness(found)
        shown |= {"listen": f"{place['host']}:{place['port']}", "ops_port": facts["ops"][name], "ready": ready}
        shown["version"] = version_of(page(ops_host(facts, name), facts["ops"][name], "/metrics", shown="all"))
        if notes:
            shown["notes"] = notes
    return shown


def version_of(metrics: str) -> str:
    """The version that a process runs, from its page of metrics; empty for one that does not tell."""
    found = BUILD.search(metrics)
    return found[1] if found else ""


def up_s(pid: int) -> float | None:
    """How long a process has been running; None for one that has ended."""
    try:
        began_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK"), 1)


def readiness(found: str) -> tuple[str, dict[str, str]]:
    """ "yes" or the reason why not, and what an operator should know, from the answer of /readyz."""
    try:
        state = json.loads(found)
        return ("yes" if state["ready"] else found), state["notes"]
    except (ValueError, TypeError, KeyError):
        return found, {}


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def page(host: str, port: int, path: str, shown: str = "yes") -> str:
    """ "yes" for status 200 (or the page, with `shown` "all"), else its answer, or the reason why there was none."""
    connection = http.client.HTTPConnection(host, port, timeout=PAGE_S_MAX)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status == 200 and shown == "all":
            return answer.read().decode(errors="replace")
        return "yes" if answer.status == 200 else answer.read(400).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as fault:
        return f"no answer ({fault})"
    finally:
        connection.close()


def add_applied(processes: list[dict[str, Any]], store: ConfigStore) -> None:
    """Add the configuration that each process has applied; `behind` names the kinds of which the store is newer."""
    wanted, reports = store.version(), {name.partition("/")[0]: each for name, each in store.applied().items()}
    for each in processes:
        kind = "engine" if each["name"].startswith("engine-") else each["name"]
        report = reports.get(f"{kind}@{each.get('listen')}")
        if report:
            each["applied"] = report.version
            each["behind"] = [kind for kind, number in wanted.items() if report.version.get(kind, 0) < number]


def engine(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """The log's ends, the number of topics and groups, and the lag of each group."""
    key = Path(facts["admin_key"]).read_bytes()
    place = facts[name]
    with AdminClient((place["host"], place["port"]), key, timeout_s=PAGE_S_MAX) as admin:
        state = admin.ask("status")
        topics = admin.ask("topics", limit=TOPICS_MAX)["topics"]
        groups, end_s = admin.ask("groups", limit=GROUPS_MAX)["groups"], time.monotonic() + LAG_S_MAX
        lags: dict[str, int] = {}
        for group in groups:
            if time.monotonic() >= end_s:
                break
            lags[group] = sum(row["lag"] for row in admin.ask("lag", group=group)["queues"])
    more = len(topics) == TOPICS_MAX
    return {"status": state, "topics": len(topics), "topics_more": more, "groups": len(groups), "group_lag": lags}
