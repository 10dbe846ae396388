"""Planned switches of masters, by the function behind `penstock broker switch`; never forced from a page."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from common.cluster.coordination import Coordination
from common.cluster.opening import open_coordination
from common.config.errors import StoreUnavailable
from controller.operator_switch import MasterSwitch, switch_master


class GroupChange(NamedTuple):
    """One change of a group's record. `in_sync`: names, sorted."""

    at_ms: int
    epoch: int
    state: str
    master: str
    in_sync: list[str]
    reason: str


class MasterSwitches:
    """
    Args:
        url: of the configuration store, beside which the coordination is; empty: there is none.
        key: of controllers, by which brokers take a hand-over; b"": the console may not switch.
    """

    def __init__(self, url: str, key: bytes) -> None:
        self._url, self._key = url, key

    @property
    def is_possible(self) -> bool:
        """Whether the console has what a switch needs."""
        return bool(self._url and self._key)

    def switch(self, group: str, to: str, seen_master: str) -> tuple[MasterSwitch, list[str]]:
        """Make `to` master in place of `seen_master`; the switch, and sentences of warning. Raises as `switch_master`."""
        warnings: list[str] = []
        with self._coordination() as coordination:
            done = switch_master(
                coordination, group, self._key, to, warn=warnings.append, seen_master=seen_master
            )  # fmt: skip
        return done, warnings

    def history(self, group: str, limit: int) -> list[GroupChange]:
        """The latest changes of a group, newest first. Raises StoreUnavailable."""
        with self._coordination() as coordination:
            found = coordination.history(group)[-limit:]
        return [
            GroupChange(
                each.record.at_ms, each.record.epoch, each.record.state.value.lower().replace("_", " "),
                each.record.master, sorted(each.record.in_sync), each.record.reason,
            )
            for each in reversed(found)
        ]  # fmt: skip

    @contextmanager
    def _coordination(self) -> Iterator[Coordination]:
        if not self._url:
            raise StoreUnavailable("the console knows no configuration URL, beside which replicas are coordinated")
        coordination = open_coordination(self._url)
        try:
            yield coordination
        finally:
            coordination.close()
