"""All copies from Kafka into the engine that one bridge runs: they follow the configuration."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from common.config.view import ConfigView
from common.readiness import Note
from kafka_bridge.copy_in.cluster import ClusterCopiers
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.copy_in.plan import CopyPlan, plans_of
from kafka_bridge.copy_in.standstills import WHOLE, Standstill

FindPlans = Callable[[ConfigView], dict[str, CopyPlan]]


class Copier(Protocol):
    """A ClusterTopic or a SharedTopic."""

    plan: CopyPlan
    is_claimed: bool

    @property
    def stored(self) -> int: ...

    @property
    def skipped(self) -> int: ...

    @property
    def standstills(self) -> list[Standstill]: ...

    def stop(self) -> None: ...
    def join(self, timeout_s: float) -> bool: ...


NewCopier = Callable[[CopyPlan, CopyTools], Copier]
log = logging.getLogger("penstock.kafka_bridge")
JOIN_S = 60.0
FOLLOW_S = 30.0
"""Interval at which the configuration is looked at without a change."""


class InCopies:
    """Begins at once. A copy whose plan has changed ends before its successor begins.

    Args:
        find_plans: the copies that the configuration asks for, by topic of the engine.
        new_copier: begins one of them; None: as copies for all groups, by one copier per cluster.
    """

    def __init__(
        self, view: ConfigView, tools: CopyTools, find_plans: FindPlans = plans_of, new_copier: NewCopier | None = None
    ) -> None:
        self._view, self._tools = view, tools
        self._plans_of, self._new_copier = find_plans, new_copier or ClusterCopiers().copy
        self._copiers: dict[str, Copier] = {}
        self._changed, self._is_stopping = threading.Event(), False
        self._changed.set()
        view.on_change(self._changed.set)
        self._thread = threading.Thread(target=self._follow, name="copies", daemon=True)
        self._thread.start()

    @property
    def all(self) -> list[Copier]:
        """By topic."""
        return [copier for _, copier in sorted([*self._copiers.items()])]

    def health(self) -> dict[str, bool | str]:
        """InCopies for /readyz. One that stands still is a note: the bridge serves the others."""
        return {
            f"copy of {copier.plan.topic}": Note(shown(copier.standstills)) if copier.standstills else True
            for copier in self.all
        }

    def close(self, timeout_s: float) -> None:
        """End all copies, and wait for at most this time."""
        self._is_stopping = True
        self._changed.set()
        for each in self.all:
            each.stop()
        for each in self.all:
            each.join(timeout_s)

    def _follow(self) -> None:
        while not self._is_stopping:
            self._changed.wait(FOLLOW_S)
            self._changed.clear()
            try:
                self._adapt()
            except Exception:
                log.exception("internal error while the copies follow the configuration")

    def _adapt(self) -> None:
        wanted = self._plans_of(self._view)
        outdated = [each for each in self.all if wanted.get(each.plan.topic) != each.plan]
        for each in outdated:
            each.stop()
        for each in outdated:
            if each.join(JOIN_S):
                del self._copiers[each.plan.topic]
            else:
                log.warning("topic=%s: its copier does not end", each.plan.topic)
                self._changed.set()
        for topic, plan in wanted.items():
            if topic not in self._copiers and not self._is_stopping:
                log.info("topic=%s: copied from topic %s of kafka %s", topic, plan.kafka_topic, plan.cluster.name)
                self._copiers[topic] = self._new_copier(plan, self._tools)


def shown(standstills: list[Standstill]) -> str:
    """One sentence of several standstills: the first one, and how many there are."""
    first = standstills[0]
    where = "" if first.partition == WHOLE else f"partition {first.partition}: "
    more = f" (and {len(standstills) - 1} more)" if len(standstills) > 1 else ""
    return f"stands still since {first.since_ms} (Unix ms): {where}{first.sentence}{more}"
