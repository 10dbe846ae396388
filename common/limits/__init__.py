"""Rate limits: token buckets, and the leasing that makes one limit hold for a whole cluster. `NATIVE` says which meter is active."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from common.limits._meter import Meter  # type: ignore[attr-defined]

    NATIVE = True
except ImportError:
    from common.limits.meter_pure import Meter  # type: ignore[assignment]

    NATIVE = False

__all__ = ["NATIVE", "Meter"]
