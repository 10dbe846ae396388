"""Selects the evaluator: native where it is built, else its reference."""

from common.twins import use_native

NATIVE = use_native("common.filter", "_match")
if NATIVE:
    from common.filter._match import Code, FieldTable, Filter
else:
    from common.filter.match import Code, FieldTable, Filter  # type: ignore[assignment]

__all__ = ["NATIVE", "Code", "FieldTable", "Filter"]
