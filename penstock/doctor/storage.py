"""The data directory's disk: free space, file system, time of an fsync."""

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from penstock.doctor.finding import DoctorFinding

ROOM_WANTED_BYTES = 2 << 30
FSYNC_NOTED_MS = 10.0
TRIES = 20
RECORD = b"x" * 4096
NOT_DISKS = {
    "tmpfs": "memory, lost at a restart of the machine",
    "nfs": "a network",
    "nfs4": "a network",
    "overlay": "a container's layer",
}


def existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return path


def room(data: Path) -> DoctorFinding:
    free = shutil.disk_usage(existing(data)).free
    words = f"{free / (1 << 30):,.1f} GiB free at {data}"
    if free >= ROOM_WANTED_BYTES:
        return DoctorFinding("disk space", "ok", words)
    return DoctorFinding("disk space", "note", words, "the log keeps whole segments of 256 MiB: provide 2 GiB or more")


def file_system(data: Path) -> DoctorFinding:
    kind = mounted_kind(existing(data).resolve())
    if kind in NOT_DISKS:
        words = f"{kind}: {NOT_DISKS[kind]}"
        return DoctorFinding("file system", "note", words, "use a data directory on a local disk: --data DIR")
    return DoctorFinding("file system", "ok", kind)


def mounted_kind(path: Path) -> str:
    """The file system type of the longest mount point above the path."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, type_, *_ = line.split()
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, type_
    return kind


def sync_time(data: Path) -> DoctorFinding:
    """Median time of writing 4 KiB and waiting for the disk: the minimum time of an FSYNC send."""
    folder = existing(data)
    if not os.access(folder, os.W_OK):
        return DoctorFinding(
            "fsync", "missing", f"{folder} cannot be written", "use another --data DIR, or change its owner"
        )
    took_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(TRIES):
            began = time.perf_counter()
            os.write(file.fileno(), RECORD)
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    median, worst = statistics.median(took_ms), max(took_ms)
    words = f"median {median:.2f} ms, worst of {TRIES} {worst:.2f} ms"
    if median <= FSYNC_NOTED_MS:
        return DoctorFinding("fsync", "ok", words)
    return DoctorFinding(
        "fsync", "note", words, "each durable send waits that long; a faster disk or larger calls help"
    )
