"""Quota slices of a process: its shares of cluster-wide limits, borrowed from a lender, and the fallback without one.

A process without an answer from its lender falls back to a static share: the total divided by the number of processes
of its role that were alive at the lender's last answer.
"""

import json
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from common.limits import Meter
from common.limits.lender import SLICE_S

TICK_S = 0.2
IDLE_S = 5.0
"""Idle time after which no slice of a limit is borrowed: its bucket is full and its static share is enough."""
ALIVE_S = 0.8
"""Interval of requests for nothing, which show that the process is alive. Below the lender's LIVE_S by far, and below its
SLICE_S: a new lender has heard all processes before it trusts itself.
"""
LIMITS_A_REQUEST = 500
LIMITS_A_TICK = 2000
"""Limits in use that every tick serves. With more in use a tick serves a quarter of them, in turn: slices outlive four
ticks, and a tick delays all calls by some microseconds per limit.
"""
TICKS_A_ROUND = 4
LOW = 0.01
"""Share of its static share below whose use a limit borrows no slice. All processes together may exceed the limit by
this part.
"""
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

    def measure(self, asked: float, was_short: bool, seconds: float, *, is_blocked: bool) -> None:
        """Follow the demand.

        Args:
            is_blocked: the lender, which is an engine, does not answer. Callers wait for their sends too then and ask for
                less than they would: a lower demand would cost them their slice once it goes on.
        """
        change = _SMOOTHING * (asked / seconds - self.demand)
        self.demand += max(0.0, change) if is_blocked else change
        if was_short:
            self.demand = max(self.demand, _EAGERNESS * self.share)

    def rate(self, live: int, now: float) -> float | None:
        if self.total is None:
            return None
        return self.share if self.lent_until > now else self.total / live


@dataclass(slots=True)
class _Limit:
    """A limit and its meter. `held` keeps the meter alive while in use: callers look it up per call."""

    key: str
    meter: "weakref.ref[Meter]"
    held: Meter | None = None
    used_at: float = 0.0
    measured_at: float = 0.0
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
        self._joined: list[Meter] = []  # by meters at their first use; see Meter.used
        self._in_use: dict[str, _Limit] = {}
        self._new: list[Meter] = []  # kept alive until they are used, for a while
        self._newer: list[Meter] = []
        self._shifted_at = now()
        self._asked_at = -math.inf
        self._is_unanswered = False  # the last question
        self.live = 1

    @property
    def lent(self) -> int:
        """Number of limits with a valid slice. The others use their static share."""
        now = self._now()
        return sum(any(side.lent_until > now for side in limit.sides.values()) for limit in self._in_use.values())

    def meter(self, key: str, messages: int, bytes: int) -> Meter | None:
        """The meter of a limit by its key, such as `topic:orders`, at these totals per second from now on; None when
        both are 0.

        One key has one meter for as long as a caller keeps it, or it was made or used within IDLE_S. A meter that is
        not in use costs its memory only.
        """
        if not messages and not bytes:
            return None
        found = self._limits.get(key)
        meter = found.meter() if found else None
        if found is None or meter is None:
            found, meter = self._made(key)
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

    def _made(self, key: str) -> tuple[_Limit, Meter]:
        meter = Meter()
        limit = self._limits[key] = _Limit(key, weakref.ref(meter, lambda gone: self._forget(key, gone)))
        meter.limit, meter.used = limit, self._joined
        self._newer.append(meter)
        return limit, meter

    def _forget(self, key: str, gone: "weakref.ref[Meter]") -> None:
        found = self._limits.get(key)
        if found is not None and found.meter is gone:
            del self._limits[key]

    def tick(self) -> None:
        """Called every TICK_S: measure demand, fall back where a slice has expired, request the next slices.

        Costs per limit in use, not per limit.
        """
        now = self._now()
        if now - self._shifted_at >= IDLE_S:
            self._shifted_at, self._new, self._newer = now, self._newer, []
        self._join(now)
        wanted: list[tuple[str, str]] = []
        for limit in self._next():
            self._visit(limit, now, wanted)
        is_due = wanted or now - self._asked_at >= ALIVE_S
        for at in range(0, max(1, len(wanted)) if is_due else 0, LIMITS_A_REQUEST):
            self._borrow(wanted[at : at + LIMITS_A_REQUEST], now)

    def _join(self, now: float) -> None:
        """Take the meters that were used for the first time since they were idle."""
        for meter in self._joined:
            limit: _Limit = meter.limit
            limit.held, limit.used_at, limit.measured_at = meter, now, now - TICK_S
            self._in_use[limit.key] = limit
        self._joined.clear()

    def _next(self) -> list[_Limit]:
        """The limits that this tick serves; they are served last in the next round."""
        count = max(LIMITS_A_TICK, -(-len(self._in_use) // TICKS_A_ROUND))
        if count >= len(self._in_use):
            return list(self._in_use.values())
        served = list(islice(self._in_use.values(), count))
        for limit in served:
            self._in_use[limit.key] = self._in_use.pop(limit.key)
        return served

    def _visit(self, limit: _Limit, now: float, wanted: list[tuple[str, str]]) -> None:
        """Measure a limit in use and add its sides that need a slice to `wanted`, or let it go."""
        meter = limit.held
        assert meter is not None
        messages, bytes, messages_short, bytes_short = meter.read_demand()
        if messages:
            limit.used_at = now
        is_idle = now - limit.used_at >= IDLE_S
        seconds, limit.measured_at = max(0.001, now - limit.measured_at), now
        asked = (messages, messages_short), (bytes, bytes_short)
        for (name, side), (amount, was_short) in zip(limit.sides.items(), asked, strict=True):
            if side.total is None:
                continue
            side.measure(amount, was_short, seconds, is_blocked=self._is_unanswered)
            if is_idle:
                side.demand = side.lent_until = 0.0
            elif side.demand >= LOW * side.total / self.live:
                wanted.append((limit.key, name))
        self._apply(limit, meter)
        if is_idle:
            limit.held, meter.noted = None, False
            del self._in_use[limit.key]

    def _apply(self, limit: _Limit, meter: Meter) -> None:
        now, sides = self._now(), limit.sides
        meter.set_rates(sides["messages"].rate(self.live, now), sides["bytes"].rate(self.live, now), now)

    def _borrow(self, wanted: list[tuple[str, str]], now: float) -> None:
        """Ask for slices of these sides; without any the request only shows that the process is alive."""
        limits = []
        for key, name in wanted:
            side = self._limits[key].sides[name]
            limits.append({"key": f"{key}:{name}", "total": side.total, "demand": side.demand})
        self._is_unanswered, self._asked_at = True, now
        request = {"role": self._role, "process": self._process, "limits": limits, "live": self.live}
        self._ask(json.dumps(request).encode(), lambda code, payload: self._answered(wanted, now, code, payload))

    def _answered(self, wanted: list[tuple[str, str]], asked_at: float, code: int, payload: bytes) -> None:
        if code:
            return  # the lender cannot be reached: slices expire by themselves
        self._is_unanswered = False
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
