"""A broker's disk: a file system in a file, whose power is cut and which can be full."""

import json
import os
import secrets
import shutil
from pathlib import Path

from tests.fault.power_cut import DROP_LOG, KEEP_LOG, FileSystem
from tests.waiting import until

SIZE_BYTES = 4 << 30
ENGINE_OPTIONS = (
    "--segment-mib", "4", "--retention-hours", "0",
    "--disk-reserve-mib", "16", "--disk-percents", "97,98,99",
)  # fmt: skip
"""Nothing is deleted: the verdict reads all of the log."""
PART_BYTES_MIN = 64 << 10


class BrokerDisk:
    """
    Attributes:
        data: directory for the broker, on this disk.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.kind = kind
        self._system = FileSystem(kind, folder, SIZE_BYTES)
        self._system.make()
        self._system.mount()
        self._mount_point = self._system.mount_point
        self.data = self._mount_point / "data"
        self._filler = self._mount_point / "filler"

    def cut(self, keeps_log: bool) -> None:
        """From here on nothing reaches the disk any more. The broker has to be killed."""
        self._system.cut(KEEP_LOG if keeps_log else DROP_LOG)

    def power_on(self) -> None:
        """Mount it again, as after a start of the machine; no process uses it any more."""
        until(self._unmounted, "the disk is free", 10)
        self._system.mount()
        path = self.data / "incarnation"
        if path.exists():
            value = json.loads(path.read_text() or "{}")
            if not value.get("is_orderly"):  # this kernel went on, so its name of the start has to differ
                path.write_text(json.dumps({**value, "boot": secrets.token_hex(8)}))

    def _unmounted(self) -> bool:
        try:
            self._system.unmount()
        except OSError:
            return False
        return True

    def fill(self) -> None:
        """Leave no room."""
        part, at = shutil.disk_usage(self._mount_point).free, 0
        with self._filler.open("wb") as file:
            while part >= PART_BYTES_MIN:
                try:
                    os.posix_fallocate(file.fileno(), at, part)
                    at += part
                except OSError:  # the file system keeps some of it
                    part //= 2
                part = min(part, shutil.disk_usage(self._mount_point).free)

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        self._unmounted()
