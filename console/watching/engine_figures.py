"""Figures from the engines: rates of topics, progress and lag of groups, disks. Each look asks a bounded share of them.

Of topics: those that have moved within the last minutes, then the next ones by name, QUEUES_PER_LOOK queues in all. Of
groups: those that are behind or have moved, then the next ones. So the cost of a look does not grow with the number of
topics; an idle topic among 100,000 that begins to move is noticed one round later.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from console.database.series_history import ALL, ANSWERS, SeriesKey
from console.installation.broker_queries import BrokerLinks, BrokerQueries
from console.installation.queue_states import queue_ends
from console.watching.counter_rates import CounterRates
from console.watching.figures import Sample
from engine.client.admin import AdminError
from engine.link.errors import LinkError

QUEUES_PER_LOOK, IDLE_QUEUES_PER_LOOK = 2_000, 1_000
"""In all, and of topics that have not moved lately."""
GROUPS_PER_LOOK, IDLE_GROUPS_PER_LOOK = 60, 15
DETAILS_PER_LOOK = 8
"""Groups whose lag in time is asked: it costs the engine some 0.2 ms per queue. All bounds together keep a look near 0.1 s
of the engine's CPU, 1 % of a core."""
MOVING_S = 300.0
LEVELS = {"fine": 0, "warn": 1, "delete": 2, "refuse": 3}


class Rotation:
    """Chooses names: the moving ones first, then the next ones of a list whose beginning moves on."""

    def __init__(self) -> None:
        self._after = ""
        self._moved_s: dict[str, float] = {}

    def note(self, name: str, at_s: float) -> None:
        """The name has moved."""
        self._moved_s[name] = at_s

    def moving(self, at_s: float) -> list[str]:
        """The names that have moved lately, the latest first."""
        self._moved_s = {name: moved_s for name, moved_s in self._moved_s.items() if at_s - moved_s <= MOVING_S}
        return sorted(self._moved_s, key=lambda name: -self._moved_s[name])

    def following(self, page: Callable[[str], list[str]]) -> list[str]:
        """The next names of `page(after)`; begins anew after the last one."""
        names = page(self._after)
        self._after = names[-1] if names else ""
        return names


class EngineFigures:
    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries
        self._topics, self._groups, self._details = Rotation(), Rotation(), Rotation()
        self._queues: dict[str, int] = {}
        self._rates = CounterRates()
        self._lag_s: dict[str, float] = {}

    def sample(self, at_s: float) -> Sample:
        """The figures now. `answers` is 1 where all engines answered; else the figures of topics and groups are left out."""
        found: Sample = {}
        with self._queries.open() as opened:
            found.update(_disks(opened))
            answers = not opened.faults
            try:
                if answers:
                    found.update(self._of_groups(opened, at_s))
                    found.update(self._of_topics(opened, at_s))
            except (OSError, LinkError, AdminError):
                answers = False
        self._rates.forget_old(at_s)
        found[SeriesKey(ALL, ANSWERS)] = float(answers)
        return found

    def _of_topics(self, opened: BrokerLinks, at_s: float) -> Sample:
        found: Sample = {}
        for name, ends in queue_ends(self._queries, opened, self._chosen_topics(opened, at_s)).items():
            rate = self._rates.rate(("topic", name), sum(ends), at_s)
            if rate:
                self._topics.note(name, at_s)
            found[SeriesKey(f"topic:{name}", "in")] = rate or 0.0
        return found

    def _chosen_topics(self, opened: BrokerLinks, at_s: float) -> dict[str, int]:
        """Topics to look at, with their number of queues."""
        chosen: dict[str, int] = {}
        left = QUEUES_PER_LOOK

        def page(after: str) -> list[str]:
            rows: dict[str, int] = {}
            count = max(1, min(left, IDLE_QUEUES_PER_LOOK) // 8)
            for link in opened.links.values():
                for row in link.ask("topics", after=after, limit=count)["topics"]:
                    rows[row["name"]] = max(rows.get(row["name"], 0), row["queues"])
            self._queues.update(rows)
            return sorted(rows)[:count]

        for names in (self._topics.moving(at_s), self._topics.following(page)):
            for name in names:
                queues = self._queues.get(name, 0)
                if queues and name not in chosen and left >= queues:
                    chosen[name], left = queues, left - queues
        self._queues = {name: self._queues[name] for name in chosen}
        return chosen

    def _of_groups(self, opened: BrokerLinks, at_s: float) -> Sample:
        found: Sample = {}
        moving = self._groups.moving(at_s)
        detailed = set(self._details.following(lambda after: _page(sorted(moving), after, DETAILS_PER_LOOK)))
        others = self._groups.following(
            lambda after: self._queries.groups(opened, after=after, limit=IDLE_GROUPS_PER_LOOK)
        )
        topics_out: dict[str, float] = defaultdict(float)
        topics_lag: dict[str, float] = defaultdict(float)
        for name in dict.fromkeys([*moving[: GROUPS_PER_LOOK // 2], *sorted(detailed), *others]):
            answer = self._queries.ask(opened, "lag", "queues", group=name, detail=name in detailed or None)
            if answer.faults or not answer.rows:
                continue
            found.update(self._of_group(name, answer.rows, at_s, topics_out, topics_lag))
        for figure, values in (("out", topics_out), ("lag", topics_lag)):
            found.update({SeriesKey(f"topic:{topic}", figure): value for topic, value in values.items()})
        return found

    def _of_group(
        self, name: str, rows: list[dict[str, Any]], at_s: float, topics_out: dict[str, float], topics_lag: dict[str, float]
    ) -> Sample:  # fmt: skip
        out = lag = 0.0
        for topic, own in _by_topic(rows).items():
            done = sum(row["progress"] for row in own)
            rate = self._rates.rate(("group", name, topic), done, at_s, may_fall=False) or 0.0
            own_lag = sum(row["lag"] for row in own)
            topics_out[topic] += rate
            topics_lag[topic] = max(topics_lag[topic], own_lag)
            out, lag = out + rate, lag + own_lag
        in_flight = sum(row["in_flight"] for row in rows)
        if out or lag or in_flight:
            self._groups.note(name, at_s)
        if "lag_s" in rows[0]:
            self._lag_s[name] = max(row["lag_s"] for row in rows)
        if not lag:
            self._lag_s.pop(name, None)
        subject = f"group:{name}"
        found = {"out": out, "lag": lag, "in_flight": float(in_flight), "lag_s": self._lag_s.get(name, 0.0)}
        return {SeriesKey(subject, figure): value for figure, value in found.items()}


def _page(names: list[str], after: str, limit: int) -> list[str]:
    return [name for name in names if name > after][:limit] or names[:limit]


def _by_topic(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["topic"]].append(row)
    return found


def _disks(opened: BrokerLinks) -> Sample:
    """Free bytes and fill level of the leading brokers' disks."""
    found: Sample = {}
    for name, link in opened.links.items():
        try:
            disk = link.ask("status")["disk"]
        except (OSError, LinkError, AdminError, KeyError):
            continue
        found[SeriesKey(f"broker:{name}", "disk_free")] = float(disk["free_bytes"])
        found[SeriesKey(f"broker:{name}", "disk_level")] = float(LEVELS.get(disk["level"], math.nan))
    return found
