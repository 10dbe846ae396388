"""One observation of a deployment, and the rates between two of them.

Everything is asked at the same time and with a bound on time: a machine that is away does not hold up the others.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.overview.pages import ProcessPages, read_pages

ASKED_AT_ONCE = 16
ENGINE_S_MAX = 2.0
GROUPS_ASKED_S_MAX = 2.0
GROUPS_MAX = 10_000
LOCAL = "127.0.0.1"
RATES = {
    "penstock_producer_messages_total": "sent_per_s",
    "penstock_consumer_deliveries_total": "delivered_per_s",
    "penstock_engine_appended_messages_total": "stored_per_s",
    "penstock_engine_deliveries_total": "delivered_per_s",
}
"""Counters of the pages, by kind of process, of which rates are shown."""


@dataclass(frozen=True)
class ProcessPlace:
    """Where a process serves, and its operator's pages; `ops_port` 0: it did not report them."""

    name: str
    kind: str
    host: str
    port: int
    machine: str
    ops_port: int = 0

    @property
    def ops_host(self) -> str:
        """Pages are bound to this machine only, by default."""
        return LOCAL if self.machine == socket.gethostname() else self.host


@dataclass(frozen=True)
class EngineFacts:
    """An engine's answer to operators, or why there is none."""

    fault: str = ""
    leads: bool = False
    broker_group: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    topics: int = 0
    groups: Sequence[str] = ()
    lag: Mapping[str, "ObservedLag"] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedLag:
    """A group at one engine."""

    messages: int
    in_flight: int
    oldest_s: float


@dataclass(frozen=True)
class Observation:
    """All that was asked at one time. Processes and engines by the process's name."""

    at_s: float
    pages: Mapping[str, ProcessPages]
    engines: Mapping[str, EngineFacts]


def observe(places: Sequence[ProcessPlace], admin_key: bytes | None) -> Observation:
    """Ask every process for its pages, and every engine, if there is a key, for its state and the lag of its groups."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        pages = {each.name: pool.submit(_pages, each) for each in places}
        engines = {
            each.name: pool.submit(ask_engine, (each.host, each.port), admin_key)
            for each in places
            if each.kind == "engine" and admin_key is not None
        }
        at_s = time.monotonic()
        found_pages = {name: each.result() for name, each in pages.items()}
        return Observation(at_s, found_pages, {name: each.result() for name, each in engines.items()})


def _pages(place: ProcessPlace) -> ProcessPages:
    if not place.ops_port:
        return ProcessPages("it does not report where its pages are")
    return read_pages(place.ops_host, place.ops_port)


def ask_engine(
    address: tuple[str, int], admin_key: bytes | None, now_s: Callable[[], float] = time.monotonic
) -> EngineFacts:
    """The state of one engine; groups are asked for their lag until GROUPS_ASKED_S_MAX is over."""
    try:
        with AdminClient(address, admin_key or b"", timeout_s=ENGINE_S_MAX) as link:
            hello, status = link.hello, link.ask("status")
            if not hello.leads:
                return EngineFacts("", False, hello.broker_group, status)
            topics = len(link.ask("topics", limit=GROUPS_MAX)["topics"])
            groups = link.ask("groups", limit=GROUPS_MAX)["groups"]
            end_s = now_s() + GROUPS_ASKED_S_MAX
            lag = {}
            for name in groups:
                if now_s() >= end_s:
                    break
                lag[name] = group_lag(link.ask("lag", group=name, detail=True)["queues"])
            return EngineFacts("", True, hello.broker_group, status, topics, groups, lag)
    except (OSError, LinkError, AdminError) as error:
        return EngineFacts(f"{error or type(error).__name__}")


def group_lag(rows: Sequence[Mapping[str, Any]]) -> ObservedLag:
    """A group's queues at one engine, added up."""
    return ObservedLag(
        sum(row["lag"] for row in rows),
        sum(row["in_flight"] for row in rows),
        max((row.get("lag_s", 0.0) for row in rows), default=0.0),
    )


def rates_between(before: Observation | None, after: Observation) -> dict[str, dict[str, float]]:
    """Per process, messages/s by the names of RATES. A process that has restarted in between has none."""
    found: dict[str, dict[str, float]] = {}
    for name, pages in after.pages.items():
        old = before.pages.get(name) if before is not None else None
        seconds = after.at_s - before.at_s if before is not None else 0.0
        if old is None or seconds <= 0:
            continue
        for metric, shown in RATES.items():
            if metric in pages.metrics and metric in old.metrics:
                change = pages.metrics[metric] - old.metrics[metric]
                if change >= 0:
                    found.setdefault(name, {})[shown] = round(change / seconds, 1)
    return found


def total_lag(observation: Observation) -> dict[str, ObservedLag]:
    """Each group's lag over all engines that lead."""
    found: dict[str, ObservedLag] = {}
    for engine in observation.engines.values():
        for name, lag in engine.lag.items():
            old = found.get(name, ObservedLag(0, 0, 0.0))
            found[name] = ObservedLag(
                old.messages + lag.messages, old.in_flight + lag.in_flight, max(old.oldest_s, lag.oldest_s)
            )
    return found
