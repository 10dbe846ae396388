"""Who lends the slices of a cluster-wide limit: divides each by demand, and never lends more than there is.

Kept in memory only: a lender that starts anew has lent nothing, and gives static shares until the leases of its
predecessor have run out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SLICE_S = 1.0
"""How long a share is good for. More bridges longer absences of the lender; less frees a dead process' share sooner."""
LIVE_S = 3.0
"""How long a process counts as living after its last word."""
IDLE_SHARE = 0.01  # of a limit, divided among all, so that a process can begin before its first demand is known
MARGIN = 1.02  # above its demand, so that demand can be seen to grow


@dataclass(slots=True)
class _Lease:
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
        self._leases: dict[str, dict[str, _Lease]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._swept_at = now

    def live(self, role: str, process: str, now: float) -> int:
        """Note that this process lives; how many of its role do."""
        self._seen[role, process] = now
        self._sweep(now)
        return sum(1 for (each, _), at in self._seen.items() if each == role and now - at <= LIVE_S)

    def renew(self, key: str, total: float, process: str, demand: float, live: int, now: float) -> float:
        """The process' share of the limit from now on, for SLICE_S, in place of what it had.

        Args:
            demand: what it would use if it could; more than its share when it had to refuse.
        Invariant: the shares of a key that have not run out add up to `total` at most, except where others hold more of a total
            that was lowered meanwhile: then this share is 0 until they have renewed theirs.
        """
        leases = self._leases.setdefault(key, {})
        others = {name: lease for name, lease in leases.items() if name != process and lease.until > now}
        wanted = divide(total, {process: demand, **{name: lease.demand for name, lease in others.items()}})[process]
        share = max(0.0, min(wanted, total - sum(lease.share for lease in others.values())))
        if now < self._trusts_itself_from:
            share = min(share, total / max(1, live))
        leases[process] = _Lease(demand, share, now + SLICE_S)
        return share

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < SLICE_S:
            return
        self._swept_at = now
        for key, leases in list(self._leases.items()):
            for process in [name for name, lease in leases.items() if lease.until <= now]:
                del leases[process]
            if not leases:
                del self._leases[key]
        for who in [who for who, at in self._seen.items() if now - at > LIVE_S]:
            del self._seen[who]


def divide(total: float, demands: Mapping[str, float]) -> dict[str, float]:
    """Max-min fair shares that add up to `total`: nobody gets more than it asks while another lacks; what is left is spread evenly."""
    floor = IDLE_SHARE * total / len(demands)
    shares = {}
    left, unserved = total, len(demands)
    for name, demand in sorted(demands.items(), key=lambda each: each[1]):
        shares[name] = max(floor, min(demand * MARGIN, left / unserved))
        left -= shares[name]
        unserved -= 1
    return {name: share + max(0.0, left) / len(demands) for name, share in shares.items()}
