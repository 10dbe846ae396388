"""Device errors in one running process: calls on chosen files return an error, as from a failing disk."""

import errno
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import require

SOURCE = Path(__file__).with_suffix(".c")
READ, WRITE, SYNC, OPEN, ALLOCATE, RENAME, UNLINK = (1 << bit for bit in range(7))
_RULE = struct.Struct("<IiII64sI")
_CALLS, _FAILED = struct.Struct("<I"), struct.Struct("<I")


class FailingDisk:
    """A library that stands between a process and the system's calls on files; it needs no device and no privilege.

    Attributes:
        environment: what the process needs.
    """

    def __init__(self, folder: Path) -> None:
        require(shutil.which("cc"), "cc, for a library that makes a process's calls fail")
        library = folder / "failing_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self._file = folder / "failing"
        self._file.write_bytes(bytes(_RULE.size))
        self.environment = {"LD_PRELOAD": str(library), "FAILING_DISK": str(self._file)}

    @contextmanager
    def failing(self, calls: int, part: str, error: int = errno.EIO, least: int = 0) -> Iterator[None]:
        """Fail these calls on files whose path contains `part`; reads only where they pass the offset `least`."""
        with self._ruled(calls, part, error, least, 0):
            yield

    @contextmanager
    def slow(self, calls: int, part: str, delay_ms: int) -> Iterator[None]:
        """Let each of these calls on files whose path contains `part` take so much longer."""
        with self._ruled(calls, part, 0, 0, delay_ms):
            yield

    @contextmanager
    def _ruled(self, calls: int, part: str, error: int, least: int, delay_ms: int) -> Iterator[None]:
        self._write(0, struct.pack("<iII64sI", error, 0, least, part.encode(), delay_ms))
        self._write(None, _CALLS.pack(calls))
        try:
            yield
        finally:
            self._write(None, _CALLS.pack(0))

    @property
    def failed(self) -> int:
        """Calls that have failed, or took longer, since the last `failing` or `slow`."""
        return _FAILED.unpack_from(self._file.read_bytes(), 8)[0]

    def _write(self, calls: int | None, data: bytes) -> None:
        with self._file.open("r+b") as file:
            if calls is not None:
                file.write(_CALLS.pack(calls))
            file.write(data)
