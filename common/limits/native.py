"""Selects the active form of each module of this package: native where it is built, else the reference."""

from common.twins import use_native

NATIVE = use_native("common.limits", "_meter", "_queue_limit")
if NATIVE:
    from common.limits._meter import Meter  # type: ignore[attr-defined]
    from common.limits._queue_limit import QueueLimit  # type: ignore[attr-defined]
else:
    from common.limits.meter import Meter  # type: ignore[assignment]
    from common.limits.queue_limit import QueueLimit  # type: ignore[assignment]

__all__ = ["NATIVE", "Meter", "QueueLimit"]
