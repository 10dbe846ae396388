"""Selects the form of the filter index and of filters over stored records: native modules, or their references."""

from collections.abc import Callable
from typing import Any, NamedTuple

from common.filter import match
from common.filter.native import NATIVE as EVALUATOR_IS_NATIVE
from common.twins import use_native
from engine.filter import lookup
from engine.filter import select as select_reference


class FilterForm(NamedTuple):
    """The parts of one form. They belong together; tests run both forms in one process."""

    name: str
    FieldTable: Any
    Code: Any
    IndexEntry: Any
    KeyTable: Any
    Lookup: Any
    drop: Callable
    select: Callable


REFERENCE = FilterForm(
    "reference", match.FieldTable, match.Code, lookup.IndexEntry, lookup.KeyTable, lookup.Lookup, lookup.drop, select_reference.select,
)  # fmt: skip
FORM = REFERENCE
NATIVE = use_native("engine.filter", "_lookup", "_select", requires=EVALUATOR_IS_NATIVE)
if NATIVE:
    from common.filter._match import Code, FieldTable

    from engine.filter._lookup import IndexEntry, KeyTable, Lookup, drop
    from engine.filter._select import select as native_select

    FORM = FilterForm("native", FieldTable, Code, IndexEntry, KeyTable, Lookup, drop, native_select)
select = FORM.select
