"""The lender of quota slices: divides each cluster-wide limit by demand, and never lends more than its total.

It keeps no state on disk. After a restart it lends static shares until the slices of its predecessor have expired.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SLICE_S = 1.0
"""Lifetime of a slice.

More bridges longer outages of the lender; less frees the slice of an ended process sooner.
"""
LIVE_S = 3.0
"""Time after its last request for which a process counts as alive."""
IDLE_SHARE = 0.01  # of a limit, divided among all processes, so that one can start before its demand is known
RESERVE = 0.1
"""Largest part of a limit that stays unlent while no process asks for it, so that a new process finds some.

More serves a newcomer's first tenth of a second better; less leaves larger bursts to the processes that are there.
"""
MARGIN = 1.02  # above its demand, so that demand can be seen to grow


@dataclass(slots=True)
class _Slice:
    demand: float
    share: float
    until: float


class QuotaLender:
    """
    Args:
        now: seconds of a clock that never steps back, as of the start.
    """

    def __init__(self, now: float) -> None:
        self._trusts_itself_from = now + SLICE_S
        self._slices: dict[str, dict[str, _Slice]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._swept_at = now

    def live(self, role: str, process: str, now: float) -> int:
        """Note that this process is alive; returns the number of live processes of its role."""
        self._seen[role, process] = now
        self._sweep(now)
        return sum(1 for (each, _), at in self._seen.items() if each == role and now - at <= LIVE_S)

    def is_new(self, now: float) -> bool:
        """Whether slices of an earlier lender may still be valid, and processes not be heard yet."""
        return now < self._trusts_itself_from

    def renew(self, key: str, total: float, process: str, demand: float, live: int, now: float) -> float:
        """Return the process' slice of the limit, valid for SLICE_S from now; it replaces the process' earlier one.

        Args:
            demand: the rate that it would use without a limit; above its slice when it had to reject calls.
            live: processes of the role, as far as the lender or the process itself knows.
        Invariant: the valid slices of a key add up to at most `total`. When `total` was lowered below the slices of
            the other processes, this slice is 0 until they have renewed theirs.
        """
        slices = self._slices.setdefault(key, {})
        others = {name: each for name, each in slices.items() if name != process and each.until > now}
        wanted = divide(total, {process: demand, **{name: each.demand for name, each in others.items()}})[process]
        free = max(0.0, total - sum(each.share for each in others.values()))
        mine = slices.get(process)
        if others and (mine is None or mine.until <= now):
            free /= max(1, live - len(others)) + 1  # others may come before those that hold slices give way
        share = min(wanted, free)
        if self.is_new(now):
            share = min(share, total / max(1, live))
        slices[process] = _Slice(demand, share, now + SLICE_S)
        return share

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < SLICE_S:
            return
        self._swept_at = now
        for key, slices in list(self._slices.items()):
            for process in [name for name, each in slices.items() if each.until <= now]:
                del slices[process]
            if not slices:
                del self._slices[key]
        for who in [who for who, at in self._seen.items() if now - at > LIVE_S]:
            del self._seen[who]


def divide(total: float, demands: Mapping[str, float]) -> dict[str, float]:
    """Max-min fair shares: none exceeds its demand while another is short; the rest is spread evenly.

    Of the rest one share, at most RESERVE of `total`, is left for a process that is not there yet.
    """
    floor = IDLE_SHARE * total / len(demands)
    shares = {}
    left, unserved = total, len(demands)
    for name, demand in sorted(demands.items(), key=lambda each: each[1]):
        shares[name] = max(floor, min(demand * MARGIN, left / unserved))
        left -= shares[name]
        unserved -= 1
    left = max(0.0, left)
    left -= min(left / (len(demands) + 1), RESERVE * total)
    return {name: share + left / len(demands) for name, share in shares.items()}
