"""Slaves that rest after a failed join, 1, 2, 4 … 30 s, so that sends do not wait for them again and again."""

from collections.abc import Mapping
from dataclasses import dataclass

from common.cluster.group_record import GroupRecord, Incarnation

REST_S_MIN, REST_S_MAX = 1.0, 30.0
STEADY_S = 60.0
"""A slave that was in the set for so long begins anew; one that leaves it earlier has failed to join, too."""


@dataclass
class _Tries:
    """Of one slave. `joined_s`: since when it is in the set."""

    incarnation: Incarnation
    failures: int = 0
    until_s: float = float("-inf")
    joined_s: float = float("-inf")


class JoinRests:
    """Watches the records of one group. A slave that has restarted has not failed yet."""

    def __init__(self) -> None:
        self._tries: dict[str, _Tries] = {}

    def resting(self, now_s: float) -> set[str]:
        """Names of the slaves that rest."""
        return {name for name, tries in self._tries.items() if now_s < tries.until_s}

    def changed(self, old: GroupRecord | None, new: GroupRecord | None, now_s: float) -> None:
        """The group has got another record."""
        if old is None or new is None:
            return
        for name, incarnation in new.in_sync.items():
            if old.in_sync.get(name) != incarnation:
                self._of(name, incarnation).joined_s = now_s
        for name, incarnation in old.awaited.items():
            if incarnation not in (new.in_sync.get(name), new.joining.get(name)):
                self._left(self._of(name, incarnation), name in old.in_sync, now_s)

    def restarted(self, incarnations: Mapping[str, Incarnation]) -> None:
        """Forget slaves that are other processes now."""
        for name, incarnation in incarnations.items():
            if name in self._tries and self._tries[name].incarnation != incarnation:
                del self._tries[name]

    def _left(self, tries: _Tries, was_in_sync: bool, now_s: float) -> None:
        if was_in_sync and now_s - tries.joined_s >= STEADY_S:
            tries.failures = 0
            return
        tries.failures += 1
        tries.until_s = now_s + min(REST_S_MAX, REST_S_MIN * 2 ** min(tries.failures - 1, 10))

    def _of(self, name: str, incarnation: Incarnation) -> _Tries:
        if name not in self._tries or self._tries[name].incarnation != incarnation:
            self._tries[name] = _Tries(incarnation)
        return self._tries[name]
