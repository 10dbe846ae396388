"""LEASE: the engine lends slices of cluster-wide rate limits. JSON in, JSON out; see docs/design/0014-limits.md."""

import json
import math

from common.limits.lender import QuotaLender
from engine.env.native import NodeClock
from engine.link import layout
from engine.ops.checks import json_answer
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

LIMITS_PER_REQUEST = 1000
LIVE_MAX = 100_000


class QuotaLending:
    """Serves LEASE."""

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._lender = QuotaLender(self._now_s())

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Renew the slices that the request names."""
        answer = lend(self._lender, payload, self._now_s())
        peer.send_frame(layout.LEASE, request_id, layout.OK, json_answer(answer))

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1_000_000_000


def lend(lender: QuotaLender, payload: bytes, now_s: float) -> dict:
    """Renew what the request names. Raises RequestError, and then nothing was lent."""
    try:
        request = json.loads(payload)
        role, process = request["role"], request["process"]
        known = request.get("live", 1)
        wanted = [(each["key"], each["total"], each["demand"]) for each in request["limits"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RequestError('LEASE: send {"role", "process", "limits": [{"key", "total", "demand"}], "live"}') from None
    if len(wanted) > LIMITS_PER_REQUEST:
        raise RequestError(f"LEASE: {len(wanted)} limits: send at most {LIMITS_PER_REQUEST} per request")
    if not all(isinstance(text, str) for text in (role, process, *(key for key, _, _ in wanted))):
        raise RequestError("LEASE: role, process and key: use text")
    if not all(_is_amount(amount) for _, total, demand in wanted for amount in (total, demand)):
        raise RequestError("LEASE: total and demand: use finite numbers from 0")
    if type(known) is not int or not 1 <= known <= LIVE_MAX:
        raise RequestError(f"LEASE: live: use a whole number from 1 to {LIVE_MAX}")
    # A lender that has just started has not heard all processes yet; the borrower knows how many there were.
    live = max(lender.live(role, process, now_s), known if lender.is_new(now_s) else 1)
    shares = [lender.renew(f"{role}:{key}", total, process, demand, live, now_s) for key, total, demand in wanted]
    return {"live": live, "shares": shares}


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]
