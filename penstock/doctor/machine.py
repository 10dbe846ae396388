"""Limits of the kernel and of this login."""

import os
import resource
from pathlib import Path

from penstock.doctor.finding import DoctorFinding

FILES_WANTED = 65_536
MEMORY_WANTED_BYTES = 512 << 20
DIRTY_BYTES_NOTED = 4 << 30


def open_files() -> DoctorFinding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= FILES_WANTED or soft == resource.RLIM_INFINITY:
        return DoctorFinding("open files", "ok", f"up to {soft:,} per process")
    words = f"up to {soft:,} per process, which limits the connections of a proxy"
    return DoctorFinding("open files", "note", words, f"for more: `ulimit -n {FILES_WANTED}` (hard limit {hard:,})")


def memory() -> DoctorFinding:
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(facts["MemAvailable"].split()[0]) << 10
    words = f"{available >> 20:,} MiB available, {os.cpu_count()} processors"
    if available >= MEMORY_WANTED_BYTES:
        return DoctorFinding("memory", "ok", words)
    return DoctorFinding(
        "memory", "note", words, "the processes need about 200 MiB when idle; the page cache uses the rest"
    )


def kernel_value(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text())
    except (OSError, ValueError):
        return None


def dirty_pages() -> DoctorFinding:
    """The amount of unwritten data that the kernel may collect; writing much of it at once stalls appends."""
    ratio, limit = kernel_value("vm.dirty_ratio"), kernel_value("vm.dirty_bytes")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = limit or total * (ratio or 20) // 100
    words = f"up to {most >> 20:,} MiB unwritten in the page cache before writers wait"
    if most <= DIRTY_BYTES_NOTED:
        return DoctorFinding("dirty pages", "ok", words)
    advice = "under heavy load on a slow disk `sysctl vm.dirty_background_bytes=268435456` makes stalls shorter"
    return DoctorFinding("dirty pages", "note", words, advice)


def overcommit() -> DoctorFinding:
    if kernel_value("vm.overcommit_memory") != 2:
        return DoctorFinding("memory overcommit", "ok", "as usual")
    words = "strict (vm.overcommit_memory = 2): a start may fail although memory is free"
    return DoctorFinding("memory overcommit", "note", words, "leave room: vm.overcommit_ratio")


def clock() -> DoctorFinding:
    """The clock source. A credential's time must be within five minutes of the proxies' clocks."""
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text().strip() if source.exists() else "unknown"
    slow = name in ("hpet", "acpi_pm")
    advice = "each read of the clock is a slow device access: use tsc if the machine has it" if slow else ""
    return DoctorFinding(
        "clock", "note" if slow else "ok", f"source {name}; keep it synchronised: credentials contain the time", advice
    )
