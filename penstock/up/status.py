"""The state of a running `up`: processes by /proc and their operator's pages, engines by their answers."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config import open_store
from common.config.store import ConfigStore
from common.ops.page_reader import NOT_READY, OK, PAGE_S_MAX, Address, read_page
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.overview.pages import readiness, version_of
from penstock.up.files import ops_host

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
    page = metrics_of((ops_host(facts, name), facts["ops"][name]))
    return {group: BREAKER_STATES.get(value, value) for group, value in BREAKER_LINE.findall(page)}


def process(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    pid = facts["pids"][name]
    shown = {"name": name, "pid": pid, "rss_mib": round(rss_bytes(pid) / (1 << 20), 1), "up_s": up_s(pid)}
    if name in facts.get("restarts", {}):
        shown["restarts"] = facts["restarts"][name]
    if name in facts["ops"]:
        place, address = facts[name], (ops_host(facts, name), facts["ops"][name])
        ready, notes = readiness_at(address)
        shown |= {"listen": f"{place['host']}:{place['port']}", "ops_port": facts["ops"][name], "ready": ready}
        shown["version"] = version_of(metrics_of(address))
        if notes:
            shown["notes"] = notes
    return shown


def up_s(pid: int) -> float | None:
    """How long a process has been running; None for one that has ended."""
    try:
        began_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK"), 1)


def readiness_at(address: Address) -> tuple[str, Mapping[str, str]]:
    """ "yes" or the reason why not, and what an operator should know, from the answer of /readyz."""
    try:
        answer = read_page(address, "/readyz")
    except OSError as fault:
        return f"no answer ({fault})", {}
    if answer.status not in (OK, NOT_READY):
        return answer.text[:400].strip(), {}
    reason, notes = readiness(answer)
    return reason or "yes", notes


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def metrics_of(address: Address) -> str:
    """The page of metrics; empty where there is none."""
    try:
        return read_page(address, "/metrics").text
    except OSError:
        return ""


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
