"""Selects native modules or their references for the timer table, its loading and the gathering of due timers."""

from common.twins import use_native
from engine.log.segment.native import NATIVE as LOG_IS_NATIVE

NATIVE = use_native("engine.timers", "_gather", "_load", "_table", requires=LOG_IS_NATIVE)
if NATIVE:
    from engine.timers._gather import gather
    from engine.timers._load import load
    from engine.timers._table import TimerTable, hash_id
else:
    from engine.timers.gather import gather  # type: ignore[assignment]
    from engine.timers.table import TimerTable, hash_id, load  # type: ignore[assignment]

__all__ = ["NATIVE", "TimerTable", "gather", "hash_id", "load"]
