"""Which form of the hot parts is in use: compiled modules, or their twins in pure Python.

`PENSTOCK_PURE=1` forces the twins. Import the classes from here, so that one place decides.
"""

import os

NATIVE = False
if not os.environ.get("PENSTOCK_PURE"):
    try:
        from engine.log._append import Appender
        from engine.log._ids import IdWindow
        from engine.log._index import SealedIndex, SegmentIndex, crc32c
        from engine.log._read import BatchReader
        from engine.log._sync import SyncThread
        from engine.log.lookup._merge import Merger
        from engine.log.lookup._names import Collector, Searcher, name_hash, named_records

        NATIVE = True
    except ImportError:
        pass
if not NATIVE:
    from engine.log.append_pure import Appender  # type: ignore[assignment]
    from engine.log.ids_pure import IdWindow  # type: ignore[assignment]
    from engine.log.index_pure import SealedIndex, SegmentIndex, crc32c  # type: ignore[assignment]
    from engine.log.lookup.merge_pure import Merger  # type: ignore[assignment]
    from engine.log.lookup.names_pure import (  # type: ignore[assignment]
        Collector,
        Searcher,
        name_hash,
        named_records,
    )
    from engine.log.read_pure import BatchReader  # type: ignore[assignment]
    from engine.log.sync_pure import SyncThread  # type: ignore[assignment]

__all__ = [
    "NATIVE",
    "Appender",
    "BatchReader",
    "Collector",
    "IdWindow",
    "Merger",
    "SealedIndex",
    "Searcher",
    "SegmentIndex",
    "SyncThread",
    "crc32c",
    "name_hash",
    "named_records",
]
