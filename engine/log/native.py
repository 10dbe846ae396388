"""Which form of the hot parts is in use: compiled modules, or their twins in pure Python.

`PENSTOCK_PURE=1` forces the twins. Import the classes from here, so that one place decides.
"""

import os

NATIVE = False
if not os.environ.get("PENSTOCK_PURE"):
    try:
        from engine.log.lookup_index._merge import Merger
        from engine.log.lookup_index._names import Collector, Searcher, name_hash, named_records
        from engine.log.segment._batch_reader import BatchReader
        from engine.log.segment._ids import IdWindow
        from engine.log.segment._index import SealedIndex, SegmentIndex, crc32c
        from engine.log.write._append import Appender
        from engine.log.write._sync import SyncThread

        NATIVE = True
    except ImportError:
        pass
if not NATIVE:
    from engine.log.lookup_index.merge import Merger  # type: ignore[assignment]
    from engine.log.lookup_index.names import (  # type: ignore[assignment]
        Collector,
        Searcher,
        name_hash,
        named_records,
    )
    from engine.log.segment.batch_reader import BatchReader  # type: ignore[assignment]
    from engine.log.segment.ids import IdWindow  # type: ignore[assignment]
    from engine.log.segment.index import SealedIndex, SegmentIndex, crc32c  # type: ignore[assignment]
    from engine.log.write.append import Appender  # type: ignore[assignment]
    from engine.log.write.sync import SyncThread  # type: ignore[assignment]

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
