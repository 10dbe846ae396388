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
        wanted = [(each["key"], each["total"], each["demand"]) for each in request["limits"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError('LEASE: send {"role", "process", "limits": [{"key", "total", "demand"}]}') from None
    if len(wanted) > LIMITS_PER_REQUEST:
        raise RequestError(f"LEASE: {len(wanted)} limits: send at most {LIMITS_PER_REQUEST} per request")
    if not all(isinstance(text, str) for text in (role, process, *(key for key, _, _ in wanted))):
        raise RequestError("LEASE: role, process and key: use text")
    if not all(_is_amount(amount) for _, total, demand in wanted for amount in (total, demand)):
        raise RequestError("LEASE: total and demand: use finite numbers from 0")
    live = lender.live(role, process, now_s)
    shares = [lender.renew(f"{role}:{key}", total, process, demand, live, now_s) for key, total, demand in wanted]
    return {"live": live, "shares": shares}


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]
