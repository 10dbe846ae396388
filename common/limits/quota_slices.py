"""The limits that a process holds calls to, with its share of each: what it borrows, how, and what counts when nobody lends.

A process that hears nothing from its lender falls back to a static share, the total by the number of living processes of its kind
when the lender last spoke; never to more.
"""

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from common.limits import Meter
from common.limits.lender import SLICE_S

TICK_S = 0.2
IDLE_S = 5.0
"""A limit that nobody used for so long is not borrowed; its bucket is full again and its static share stands ready."""
LIMITS_A_REQUEST = 500
_SMOOTHING = 0.4  # of demand, a tick
_EAGERNESS = 2.0  # a process that had to refuse asks for twice its share

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
    """`held` keeps the meter while it is in use, so that its tokens outlive whoever looks it up for each call."""

    meter: "weakref.ref[Meter]"
    held: Meter | None
    used_at: float
    sides: dict[str, _Side] = field(default_factory=dict)


class QuotaSlices:
    """
    Args:
        role, process: who borrows; processes of one role share a limit.
        ask: called as (payload, answer) to ask the lender; `answer(code, payload)` comes once, later or at once, with a code that
            is not 0 when it cannot be asked.
        now: seconds of a clock that never steps back.
    """

    def __init__(
        self, role: str, process: str, ask: Callable[[bytes, Answer], object], now: Callable[[], float]
    ) -> None:
        self._role, self._process, self._ask, self._now = role, process, ask, now
        self._limits: dict[str, _Limit] = {}
        self._ticked_at = now()
        self.live = 1
        self.lent = 0  # limits of which a lent share counts now; the others go by their static share

    def meter(self, key: str, messages: int, bytes: int) -> Meter | None:
        """The meter of a limit by its key, such as `topic:orders`, at these totals a second from now on; None when both are 0.

        Whoever asks under one key gets one meter, as long as somebody holds it or has used it lately.
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
        """Other totals: the share keeps its proportion until the lender has spoken."""
        for name, total in totals.items():
            old = limit.sides.get(name)
            side = limit.sides[name] = _Side(total)
            if old is not None and old.total and total:
                side.demand, side.share, side.lent_until = old.demand, old.share * total / old.total, old.lent_until

    def tick(self) -> None:
        """Every TICK_S: measure demand, let what has run out fall back, ask the lender for the next shares."""
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
        """Ask for the shares of these sides; without any it is a sign of life."""
        limits = []
        for key, name in wanted:
            side = self._limits[key].sides[name]
            limits.append({"key": f"{key}:{name}", "total": side.total, "demand": side.demand})
        request = {"role": self._role, "process": self._process, "limits": limits}
        self._ask(json.dumps(request).encode(), lambda code, payload: self._answered(wanted, now, code, payload))

    def _answered(self, wanted: list[tuple[str, str]], asked_at: float, code: int, payload: bytes) -> None:
        if code:
            return  # away: what was lent runs out by itself
        answer = json.loads(payload)
        self.live = max(1, answer["live"])
        for (key, name), share in zip(wanted, answer["shares"], strict=True):
            limit = self._limits.get(key)
            meter = limit.meter() if limit else None
            if limit is None or meter is None or (side := limit.sides[name]).total is None:
                continue
            # From when it was asked for: it ends here before it ends at the lender, whatever the answer took.
            side.share, side.lent_until = min(share, side.total), asked_at + SLICE_S
            self._apply(limit, meter)
