"""LEASE: the engine as the lender of cluster-wide limits. JSON in, JSON out; see docs/design/0014-limits.md."""

import json
import math

from common.limits.lender import QuotaLender
from engine.server.errors import RequestError

LIMITS_A_REQUEST = 1000


def lend(lender: QuotaLender, payload: bytes, now_s: float) -> dict:
    """Renew what the request names. Raises RequestError, and then nothing was lent."""
    try:
        request = json.loads(payload)
        role, process = request["role"], request["process"]
        wanted = [(each["key"], each["total"], each["demand"]) for each in request["limits"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError('LEASE: {"role", "process", "limits": [{"key", "total", "demand"}]}') from None
    if len(wanted) > LIMITS_A_REQUEST:
        raise RequestError(f"LEASE: at most {LIMITS_A_REQUEST} limits in one request")
    if not all(isinstance(text, str) for text in (role, process, *(key for key, _, _ in wanted))):
        raise RequestError("LEASE: role, process and key are text")
    if not all(_is_amount(amount) for _, total, demand in wanted for amount in (total, demand)):
        raise RequestError("LEASE: total and demand are numbers from 0")
    live = lender.live(role, process, now_s)
    shares = [lender.renew(f"{role}:{key}", total, process, demand, live, now_s) for key, total, demand in wanted]
    return {"live": live, "shares": shares}


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]
