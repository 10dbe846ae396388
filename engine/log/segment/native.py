"""Selected forms of the segment's hot parts: indexes, the window of ids, verified reading of batches."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.log.segment", "_batch_reader", "_ids", "_index")
if NATIVE and not TYPE_CHECKING:
    from engine.log.segment._batch_reader import BatchReader
    from engine.log.segment._ids import IdWindow
    from engine.log.segment._index import SealedIndex, SegmentIndex, crc32c
else:
    from engine.log.segment.batch_reader import BatchReader
    from engine.log.segment.ids import IdWindow
    from engine.log.segment.index import SealedIndex, SegmentIndex, crc32c

__all__ = ["NATIVE", "BatchReader", "IdWindow", "SealedIndex", "SegmentIndex", "crc32c"]
