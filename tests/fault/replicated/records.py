"""Records that the load's process appends to files, one per answer and per delivery: 2 million messages in 70 MB."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOST_CALL = 399
"""Code of a message whose call ended without an answer: it may be stored."""

DELIVERED, DONE, MAYBE_DONE = range(3)


class SentRecord(NamedTuple):
    """One message and its result.

    Attributes:
        queue, offset: as the result says; -1: it names none.
        answered_s: monotonic.
        due_ms: Unix time; 0: the message is not delayed. A bound from below where the engine counts the delay.
    """

    stream: int
    number: int
    code: int
    queue: int
    offset: int
    answered_s: float
    took_s: float
    due_ms: int

    @property
    def is_acknowledged(self) -> bool:
        return self.code < 100

    @property
    def is_unknown(self) -> bool:
        return 300 <= self.code < 400


class PulledRecord(NamedTuple):
    """One delivery, or one acknowledgement as done or rejected.

    Attributes:
        kind: DELIVERED; DONE: acknowledged, and answered OK; MAYBE_DONE: with another answer, or none.
        at_ms: Unix time when the answer came.
    """

    kind: int
    stream: int
    number: int
    attempt: int
    queue: int
    offset: int
    at_ms: int


SENT = struct.Struct("<BIHhqdfq")
PULLED = struct.Struct("<BBIHhqq")


class RecordWriter:
    """Appends whole records; each `add` is one write, so threads need no lock and readers see records as a whole."""

    def __init__(self, path: Path, layout: struct.Struct) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._layout = layout

    def add(self, *records: tuple) -> None:
        if records:
            os.write(self._file, b"".join(self._layout.pack(*each) for each in records))


class RecordReader:
    """Reads a file of records that may still grow."""

    def __init__(self, path: Path, layout: struct.Struct) -> None:
        self._path, self._layout, self._position = path, layout, 0

    def new(self) -> Iterator[tuple]:
        """Records since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = len(data) // self._layout.size * self._layout.size
        self._position += whole
        yield from self._layout.iter_unpack(data[:whole])
