"""The data directory's disk: free space, file system, time of an fsync."""

import errno
import os
import statistics
import tempfile
import time
from pathlib import Path

from penstock.doctor.finding import DoctorFinding

ROOM_WANTED_BYTES = 2 << 30
REFUSE_PERCENT = 95
RESERVE_BYTES = 512 << 20
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
    """Free space. The thresholds are the defaults of the engine's --disk-percents and --disk-reserve-mib."""
    found = os.statvfs(existing(data))
    free, used = found.f_bavail * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize
    percent = 100 * used / max(used + free, 1)
    words = f"{free / (1 << 30):,.1f} GiB free at {data}"
    if percent >= REFUSE_PERCENT or free < RESERVE_BYTES:
        words = f"full: {words}, {percent:.0f} % used: an engine here refuses sends"
        advice = (
            "free some space, enlarge the disk, or shorten --retention-hours of topics; sends come back by themselves"
        )
        return DoctorFinding("disk space", "missing", words, advice)
    if found.f_files and not found.f_favail:
        return DoctorFinding("disk space", "missing", f"{words}, but no inode", "remove files that are not needed")
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
    try:
        took_ms = _sync_times_ms(folder)
    except OSError as error:
        words = f"not measured: {folder}: {error.strerror}"
        return DoctorFinding(
            "fsync", "missing", words, "see disk space above; else check the disk and the kernel's log"
        )
    median, worst = statistics.median(took_ms), max(took_ms)
    words = f"median {median:.2f} ms, worst of {TRIES} {worst:.2f} ms"
    if median <= FSYNC_NOTED_MS:
        return DoctorFinding("fsync", "ok", words)
    return DoctorFinding(
        "fsync", "note", words, "each durable send waits that long; a faster disk or larger calls help"
    )


def _sync_times_ms(folder: Path) -> list[float]:
    took_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(TRIES):
            began = time.perf_counter()
            if os.write(file.fileno(), RECORD) < len(RECORD):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    return took_ms
