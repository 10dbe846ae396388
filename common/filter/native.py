"""Which form of the evaluator is in use: compiled, or its twin. `PENSTOCK_PURE=1` forces the twin."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("the pure twin was asked for")
    from common.filter._match import Code, FieldTable, Filter

    NATIVE = True
except ImportError:
    from common.filter.match import Code, FieldTable, Filter  # type: ignore[assignment]

    NATIVE = False

__all__ = ["NATIVE", "Code", "FieldTable", "Filter"]
