"""Which form of the index's parts is in use: compiled, or their twins. `PENSTOCK_PURE=1` forces the twins."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from common.filter import match as match_pure
from engine.filter import lookup as lookup_pure
from engine.filter import sift as sift_pure


class Form(NamedTuple):
    """The parts of one form belong together, so that tests can run both in one process."""

    name: str
    FieldTable: Any
    Code: Any
    Entry: Any
    KeyTable: Any
    Lookup: Any
    drop: Callable
    sift: Callable


TWIN = Form(
    "twin", match_pure.FieldTable, match_pure.Code, lookup_pure.Entry, lookup_pure.KeyTable, lookup_pure.Lookup, lookup_pure.drop,
    sift_pure.sift,
)  # fmt: skip
FORM = TWIN
if not os.environ.get("PENSTOCK_PURE"):
    try:
        from common.filter._match import Code, FieldTable

        from engine.filter._lookup import Entry, KeyTable, Lookup, drop
        from engine.filter._sift import sift as native_sift

        FORM = Form("native", FieldTable, Code, Entry, KeyTable, Lookup, drop, native_sift)
    except ImportError:
        pass
NATIVE = FORM is not TWIN
sift = FORM.sift
