"""Progress of consumer groups: small values by key, stored as PROGRESS records and read from the view."""

from collections.abc import Iterator, Sequence

from engine.log.format import KIND_PROGRESS, pack_progress
from engine.log.view import View, after_prefix
from engine.log.write.checkpoint import Checkpoints
from engine.log.write.control import ControlWriter


class ProgressRecords:
    """The latest value of each key. The log does not know what keys and values mean."""

    def __init__(self, view: View, control: ControlWriter, checkpoints: Checkpoints) -> None:
        self._view, self._control, self._checkpoints = view, control, checkpoints

    def put_progress(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Append (key, value) records; an empty value removes the key. In the page cache on return.

        Raises DiskFullError; the first of many entries may be stored then.
        """
        changes = [(b"p" + key, value or None) for key, value in entries]
        payloads = [pack_progress(key, value) for key, value in entries]
        self._control.append(KIND_PROGRESS, payloads, lambda first, end: self._view.put_all(changes[first:end]))
        self._checkpoints.bound_pending()

    def progress(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) whose key has the prefix, in key order."""
        for key, value in self._view.scan(b"p" + prefix, after_prefix(b"p" + prefix)):
            yield key[1:], value

    def replayed_progress(self) -> Iterator[tuple[bytes, bytes]]:
        """As `progress`, of the keys that no checkpoint includes yet; after a start, those that it has replayed."""
        for key, value in self._view.unstored(b"p"):
            yield key[1:], value
