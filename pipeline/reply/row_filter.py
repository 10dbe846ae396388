"""Conditions on deliveries that are tested before columns are built. A delivery for which they do not hold costs no row."""

from functools import lru_cache
from typing import NamedTuple

from common.filter.expression import read_filter
from common.filter.formula import all_of
from common.filter.native import Filter

TIME_MAX_MS = (1 << 63) - 1


class RowFilter(NamedTuple):
    """All conditions have to hold.

    Attributes:
        texts: filters in the engine's language, over tag, key and properties.
        from_ms: the least time of storing.
        to_ms: exclusive.
    """

    texts: tuple[str, ...] = ()
    from_ms: int = 0
    to_ms: int = TIME_MAX_MS


ALL_ROWS = RowFilter()


@lru_cache(64)
def compiled(texts: tuple[str, ...]) -> Filter | None:
    """One filter for all texts; None: every message passes. Raises FilterError."""
    formula = all_of([read_filter(text).formula for text in texts])
    return None if formula is True else Filter(formula)
