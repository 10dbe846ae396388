"""A small file system of its own, in memory: a test fills it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import require


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of that size (as `mount -o size=`) at a new folder. Needs root."""
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    require(os.geteuid() == 0 and not subprocess.run(line).returncode, "a small file system needs root and mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
