"""Which form of table and gathering is in use: the compiled one, or its twin in pure Python. `PENSTOCK_PURE=1` forces the twin."""

from engine.log.segment.native import NATIVE as _LOG_IS_NATIVE

NATIVE = False
if _LOG_IS_NATIVE:
    try:
        from engine.timers._gather import gather
        from engine.timers._load import load
        from engine.timers._table import Table, hash_id

        NATIVE = True
    except ImportError:
        pass
if not NATIVE:
    from engine.timers.gather import gather  # type: ignore[assignment]
    from engine.timers.table import Table, hash_id, load  # type: ignore[assignment]

__all__ = ["NATIVE", "Table", "gather", "hash_id", "load"]
