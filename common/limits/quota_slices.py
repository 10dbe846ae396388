"""Quota slices of a process: its shares of cluster-wide limits, borrowed from a lender, and the fallback without one.

A process without an answer from its lender falls back to a static share: the total divided by the number of processes
of its role that were alive at the lender's last answer.
"""

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from common.limits import Meter
from common.limits.lender import SLICE_S

TICK_S = 0.2
IDLE_S = 5.0
"""Idle time after which no slice of a limit is borrowed: its bucket is full and its static share is enough."""
LIMITS_A_REQUEST = 500
_SMOOTHING = 0.4  # of demand, per tick
_EAGERNESS = 2.0  # a process that had to reject calls asks for twice its slice

Answer = Callable[[int, bytes], None]


@dataclass(slots=True)
class _Side:
    """Messages or bytes of one limit. `total` None: not limited."""

    total: float | None
    demand: float = 0.0
    share: float = 0.0
    lent_until: float = 0.0

    def measure(self, asked: float, was_short: bool, seconds: float) -> None:
        self.demand += _SMOOTHING * (asked / seconds - self.demand)
        if was_short:
            self.demand = max(self.demand, _EAGERNESS * self.share)

    def rate(self, live: int, now: float) -> float | None:
        if self.total is None:
            return None
        return self.share if self.lent_until > now else self.total / live


@dataclass(slots=True)
class _Limit:
    """A limit's meter. `held` keeps it alive while in use: callers look it up per call and keep no reference."""

    meter: "weakref.ref[Meter]"
    held: Meter | None
    used_at: float
    sides: dict[str, _Side] = field(default_factory=dict)


class QuotaSlices:
    """
    Args:
        role, process: the borrower; processes of one role share a limit.
        ask: called as (payload, answer) to ask the lender; it calls `answer(code, payload)` once, now or later, with a
            code other than 0 when the lender cannot be reached.
        now: seconds of a clock that never steps back.
    """

    def __init__(
        self, role: str, process: str, ask: Callable[[bytes, Answer], object], now: Callable[[], float]
    ) -> None:
        self._role, self._process, self._ask, self._now = role, process, ask, now
        self._limits: dict[str, _Limit] = {}
        self._ticked_at = now()
        self.live = 1
        self.lent = 0  # limits with a valid slice; the others use their static share

    def meter(self, key: str, messages: int, bytes: int) -> Meter | None:
        """The meter of a limit by its key, such as `topic:orders`, at these totals per second from now on; None when
        both are 0.

        One key has one meter for as long as a caller keeps it, or it was used within IDLE_S.
        """
        if not messages and not bytes:
            return None
        found = self._limits.get(key)
        meter = found.meter() if found else None
        if found is None or meter is None:
            meter = Meter()
            found = self._limits[key] = _Limit(weakref.ref(meter), meter, self._now())
        totals = {"messages": messages or None, "bytes": bytes or None}
        if totals != {name: side.total for name, side in found.sides.items()}:
            self._resize(found, totals)
            self._apply(found, meter)
        return meter

    def _resize(self, limit: _Limit, totals: dict[str, int | None]) -> None:
        """Take new totals: the slice keeps its proportion until the lender has answered."""
        for name, total in totals.items():
            old = limit.sides.get(name)
            side = limit.sides[name] = _Side(total)
            if old is not None and old.total and total:
                side.demand, side.share, side.lent_until = old.demand, old.share * total / old.total, old.lent_until

    def tick(self) -> None:
        """Called every TICK_S: measure demand, fall back where a slice has expired, request the next slices."""
        now = self._now()
        seconds = max(0.001, now - self._ticked_at)
        self._ticked_at = now
        wanted = []
        self.lent = 0
        for key, limit in list(self._limits.items()):
            meter = limit.meter()
            if meter is None:
                del self._limits[key]
                continue
            self._measure(limit, meter, seconds, now)
            self._apply(limit, meter)
            self.lent += any(side.lent_until > now for side in limit.sides.values())
            limit.held = meter if now - limit.used_at < IDLE_S else None
            if limit.held is not None:
                wanted += [(key, name) for name, side in limit.sides.items() if side.total is not None]
        for at in range(0, max(1, len(wanted)), LIMITS_A_REQUEST):
            self._borrow(wanted[at : at + LIMITS_A_REQUEST], now)

    def _measure(self, limit: _Limit, meter: Meter, seconds: float, now: float) -> None:
        messages, bytes, messages_short, bytes_short = meter.read_demand()
        if messages:
            limit.used_at = now
        limit.sides["messages"].measure(messages, messages_short, seconds)
        limit.sides["bytes"].measure(bytes, bytes_short, seconds)

    def _apply(self, limit: _Limit, meter: Meter) -> None:
        now, sides = self._now(), limit.sides
        meter.set_rates(sides["messages"].rate(self.live, now), sides["bytes"].rate(self.live, now), now)

    def _borrow(self, wanted: list[tuple[str, str]], now: float) -> None:
        """Ask for slices of these sides; without any the request only shows that the process is alive."""
        limits = []
        for key, name in wanted:
            side = self._limits[key].sides[name]
            limits.append({"key": f"{key}:{name}", "total": side.total, "demand": side.demand})
        request = {"role": self._role, "process": self._process, "limits": limits}
        self._ask(json.dumps(request).encode(), lambda code, payload: self._answered(wanted, now, code, payload))

    def _answered(self, wanted: list[tuple[str, str]], asked_at: float, code: int, payload: bytes) -> None:
        if code:
            return  # the lender cannot be reached: slices expire by themselves
        answer = json.loads(payload)
        self.live = max(1, answer["live"])
        for (key, name), share in zip(wanted, answer["shares"], strict=True):
            limit = self._limits.get(key)
            meter = limit.meter() if limit else None
            if limit is None or meter is None or (side := limit.sides[name]).total is None:
                continue
            # Counted from the question, not the answer: so it expires here before it expires at the lender.
            side.share, side.lent_until = min(share, side.total), asked_at + SLICE_S
            self._apply(limit, meter)
