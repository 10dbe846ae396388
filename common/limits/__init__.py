"""Limits: token buckets, leases that make one hold for a cluster, the bound of a queue. `NATIVE` says which form is active."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from common.limits._meter import Meter  # type: ignore[attr-defined]
    from common.limits._queue_limit import QueueLimit  # type: ignore[attr-defined]

    NATIVE = True
except ImportError:
    from common.limits.meter import Meter  # type: ignore[assignment]
    from common.limits.queue_limit import QueueLimit  # type: ignore[assignment]

    NATIVE = False

__all__ = ["NATIVE", "Meter", "QueueLimit"]
