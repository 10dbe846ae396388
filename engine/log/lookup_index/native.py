"""Selected forms of the lookup index's hot parts: collecting, merging and searching terms, reading blocks."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.segment.native import NATIVE as _SEGMENT_IS_NATIVE

NATIVE = use_native("engine.log.lookup_index", "_merge", "_terms", requires=_SEGMENT_IS_NATIVE)
if NATIVE and not TYPE_CHECKING:
    from engine.log.lookup_index._merge import Merger, unpacked_blocks
    from engine.log.lookup_index._terms import SharedScan, TermCollector, TermSearcher, records_with_term, term_hash
else:
    from engine.log.lookup_index.merge import Merger, unpacked_blocks
    from engine.log.lookup_index.terms import (
        SharedScan,
        TermCollector,
        TermSearcher,
        records_with_term,
        term_hash,
    )

__all__ = [
    "NATIVE",
    "Merger",
    "SharedScan",
    "TermCollector",
    "TermSearcher",
    "records_with_term",
    "term_hash",
    "unpacked_blocks",
]
