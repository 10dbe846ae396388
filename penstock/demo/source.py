"""The file that the demo sends, and the digests of its lines."""

import glob
import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.demo.errors import DemoError

USUAL = (
    "/var/lib/dpkg/status",
    "/var/lib/apt/lists/*_Packages",
    "/usr/share/dict/words",
    "/var/log/dpkg.log",
    "/usr/share/common-licenses/GPL-3",
    "/etc/services",
)
USUAL_BYTES_MAX = 16 << 20  # a demo without a given file should take seconds
LINE_BYTES_MAX = 15_000_000  # one call's frame is at most 16,384,000 bytes
CALL_BYTES = 4_000_000
DIGEST_BYTES = 32


@dataclass(frozen=True)
class DemoSource:
    """A file and the SHA-256 of each of its lines, newline included; 32 bytes of memory per line."""

    path: Path
    name: str  # for people: the file that the user knows, also when `path` is a copy of its beginning
    size_bytes: int
    longest_bytes: int
    digests: bytearray = field(repr=False)

    @property
    def count(self) -> int:
        return len(self.digests) // DIGEST_BYTES

    def digest(self, line: int) -> bytes:
        return bytes(self.digests[line * DIGEST_BYTES : (line + 1) * DIGEST_BYTES])

    @property
    def total(self) -> str:
        """SHA-256 over all lines' digests in order."""
        return hashlib.sha256(self.digests).hexdigest()

    def batch(self, wanted: int) -> int:
        """Lines per call, so that a call of the longest lines fits a frame."""
        return max(1, min(wanted, CALL_BYTES // max(1, self.longest_bytes)))


def usual_file() -> Path:
    """The largest of the common text files of this machine, up to USUAL_BYTES_MAX."""
    found = [Path(name) for pattern in USUAL for name in glob.glob(pattern)]
    sizes = {path: path.stat().st_size for path in found if path.is_file() and os.access(path, os.R_OK)}
    fitting = [path for path, size in sizes.items() if 0 < size <= USUAL_BYTES_MAX]
    if not fitting:
        raise DemoError("no text file was found on this machine: use --demo FILE")
    return max(fitting, key=lambda path: sizes[path])


def read_source(path: Path, lines: int | None, scratch: Path) -> DemoSource:
    """Read the file once; memory holds one line and the digests.

    Args:
        lines: use only this many; the producer then gets a copy of the file's beginning in `scratch`.
    Raises:
        DemoError: it cannot be read, is empty, or has a line that is too long for a message.
    """
    try:
        with open(path, "rb") as file:
            if lines is None:
                return measure(file, path, path)
            copy = scratch / "beginning"
            with open(copy, "wb") as out:
                out.writelines(itertools.islice(file, lines))
        with open(copy, "rb") as file:
            return measure(file, copy, path)
    except OSError as fault:
        raise DemoError(f"{path}: cannot be read: {fault.strerror or fault}") from fault


def measure(file: Iterator[bytes], path: Path, known_as: Path) -> DemoSource:
    digests, size, longest = bytearray(), 0, 0
    for number, line in enumerate(file):
        if len(line) > LINE_BYTES_MAX:
            raise DemoError(
                f"{known_as}: line {number} has {len(line):,} bytes: use a file with lines of at most {LINE_BYTES_MAX:,}"
            )
        digests += hashlib.sha256(line).digest()
        size, longest = size + len(line), max(longest, len(line))
    if not digests:
        raise DemoError(f"{known_as}: the file is empty: use another one")
    return DemoSource(path, str(known_as), size, longest, digests)
