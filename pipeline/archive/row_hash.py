"""The hash of a range's rows, equal however the rows are cut into batches."""

from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("offset", "stored_at", "id", "key", "tag", "body", "properties")
DIGEST_BYTES = 16
NULL_LENGTH = -1


class RangeHash:
    """Takes the rows in order of their offsets. Per column, lengths and bytes go to hashes of their own."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        for name in COLUMNS:
            column = batch.column(name)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                self._add(name, chunk)

    def hex(self) -> str:
        whole = blake2b(digest_size=DIGEST_BYTES)
        for name in sorted(self._parts):
            whole.update(name.encode() + b"\0" + self._parts[name].digest())
        return whole.hexdigest()

    def _add(self, name: str, array: pa.Array) -> None:
        if pa.types.is_map(array.type):
            first, count = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
            sizes = pc.subtract(array.offsets[1:], array.offsets[:-1])
            self._feed(name + ".entries", pc.if_else(array.is_valid(), sizes, NULL_LENGTH))
            self._add(name + ".names", array.keys.slice(first, count))
            self._add(name + ".values", array.items.slice(first, count))
        elif pa.types.is_timestamp(array.type):
            self._feed(name, array.cast(pa.int64()))
        elif pa.types.is_integer(array.type):
            self._feed(name, array)
        else:
            texts = array.cast(pa.binary())
            self._feed(name + ".lengths", pc.fill_null(pc.binary_length(texts), NULL_LENGTH))
            self._feed(name + ".bytes", texts)

    def _feed(self, name: str, array: pa.Array) -> None:
        """Add the values' bytes: those of a text column without its null rows, which have none."""
        found = self._parts.setdefault(name, blake2b(digest_size=DIGEST_BYTES))
        if not len(array):
            return
        if pa.types.is_binary(array.type):
            offsets = memoryview(array.buffers()[1]).cast("i")[array.offset : array.offset + len(array) + 1]
            data = array.buffers()[2]
            if data is not None:
                found.update(memoryview(data)[offsets[0] : offsets[-1]])
            return
        size = array.type.bit_width // 8
        found.update(memoryview(array.buffers()[1])[array.offset * size : (array.offset + len(array)) * size])
