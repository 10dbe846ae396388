"""Drawing: the scenario of a seed."""

import errno
from random import Random
from typing import Any

from engine.link import layout
from tests.sim.scenario import Fault, Part, Scenario
from tests.sim.themes import THEMES, copied_sources, cut_deletions, unreadable_end, withdrawn_requests

ORDERS, ASKS = {"orders": 3}, {"asks": 2}
FRESH = {"fresh-": 2}
"""Topics that come up as it runs: a name that ends in "-" gets a number, which changes every few seconds."""

BOTH = (layout.MEMORY, layout.FSYNC)
THEME_SHARE = 0.35


IO_FAULTS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("read",), errno.EIO),
    (("read",), errno.EIO),
    (("open",), errno.EMFILE),
    (("open",), errno.EIO),
    (("create",), errno.ENOSPC),
    (("create",), errno.EMFILE),
    (("open", "create"), errno.EMFILE),
    (("allocate",), errno.ENOSPC),
    (("allocate", "create"), errno.EDQUOT),
    (("write",), errno.ENOSPC),
    (("write",), errno.ENOSPC),
    (("write",), errno.EIO),
    (("sync",), errno.EIO),
    (("rename",), errno.EIO),
    (("unlink",), errno.EIO),
    (("truncate",), errno.EIO),
    (("list",), errno.EIO),
    (("disk",), errno.EIO),
    (("store",), errno.EIO),
    (("store",), errno.ENOSPC),
    (("store_read",), errno.EIO),
    (("store_read",), errno.EIO),
    (("store_open",), errno.EIO),
)
ENDS = ("kill", "kill", "kill_in_call", "kill_in_call", "power_cut", "power_cut", "power_cut_in_call", "stop")
OTHERS = (
    "clock_back", "clock_ahead", "slow_sync", "slow_tasks", "short_writes", "disk_full", "leave", "slow_reader",
    "config_late", "config_lost", "config_unreadable", "reset", "bad_sector", "pause",
)  # fmt: skip


def draw(seed: int) -> Scenario:
    """The scenario of a seed. Every twentieth is long."""
    random = Random(f"scenario {seed}")
    is_long = seed % 20 == 19
    length_ms = random.randint(30_000, 60_000) if is_long else random.randint(1_500, 5_000)
    parts = _parts(random, is_long)
    found = [_fault(random, length_ms, parts) for _ in range(_count(random, is_long))]
    found += [other for each in found for other in _beside(random, each)]
    faults = tuple(sorted(found, key=lambda each: each.at_ms))
    log = {
        "segment_bytes": random.choice((16, 16, 32, 64, 256)) << 10,
        "counters_max": random.choice((0, 0, 2_000_000)),
        "pending_max": random.choice((3, 40, 50_000)),
        "sealed_open_max": random.choice((1, 2, 64)),
        "retention_ms": 0,
        "cold_distance_bytes": random.choice((0, 0, 64 << 10)),
        "id_window_bytes_max": 1 << 20,
        "look_up": (),
    }
    node = {"tick_ms": random.choice((50, 200)), "progress_ms": random.choice((200, 1_000))}
    drawn = Scenario(seed, length_ms, parts, faults, log, node, random.random() < 0.5, random.random() < 0.9)
    if not is_long and random.random() <= THEME_SHARE:
        drawn = random.choice(THEMES)(random, drawn)
    # A fixed share of the seeds, so that all others stay as they are.
    if seed % 25 == 3 and not is_long:
        return unreadable_end(random, drawn)
    if seed % 8 == 6 and not is_long:
        return copied_sources(random, drawn)
    if seed % 40 == 11:
        return withdrawn_requests(random, drawn)
    return cut_deletions(random, drawn) if seed % 50 == 8 and not is_long else drawn


def _count(random: Random, is_long: bool) -> int:
    # A quarter of the runs is calm but for one end of the process: what breaks there is no fault's doing.
    if random.random() < 0.2:
        return 1
    return random.randint(6, 14) if is_long else random.randint(1, 5)


AT_STARTS = ("truncate", "list", "store_open", "unlink")
"""Calls of which a start makes the most."""


def _beside(random: Random, fault: Fault) -> list[Fault]:
    """Faults that make another one harder: a slow sync before a power cut, an end of the process within errors."""
    operations = fault.options.get("operations", ())
    if fault.kind == "power_cut" and random.random() < 0.4:
        return [Fault("slow_sync", max(0, fault.at_ms - 300), 400, {"ms": 1_000})]
    if operations and operations[0] in AT_STARTS:
        cut = Fault("power_cut", fault.at_ms + 5, 500, {"calls": 1})
        if operations[0] != "truncate":
            return [cut]
        # Only a torn end is cut off: some bytes must not be synced.
        return [Fault("slow_sync", max(0, fault.at_ms - 300), 400, {"ms": 1_000}), cut]
    return []


def _parts(random: Random, is_long: bool) -> tuple[Part, ...]:
    """A random choice of clients; each topic that is sent to has a group that reads it."""
    pause_ms = random.choice((600, 900) if is_long else (60, 150, 300))
    durability = random.choice(((layout.FSYNC,), BOTH, BOTH, (layout.MEMORY,)))
    sizes = random.choice((30, 300, 2_000))
    found = [_sender("plain", {**ORDERS, "payments": 1}, pause_ms, durability, bytes_max=sizes)]
    if random.random() < 0.6:
        found.append(_sender("keyed", ORDERS, 2 * pause_ms, durability, keys=5))
    if random.random() < 0.4:
        found.append(_sender("once", ORDERS, 2 * pause_ms, durability, check_ids=True))
    if random.random() < 0.5:
        found += [_sender("fresh", FRESH, 200, (layout.FSYNC,)), Part("opener", "opener", {"topics": FRESH})]
    if random.random() < 0.6:
        later = _sender("later", ORDERS, 2 * pause_ms, durability, bytes_max=random.choice((50, 1_500, 4_000)))
        found.append(later._replace(kind="delayed"))
    if random.random() < 0.3:
        found += [_sender(name, ASKS, 400, (layout.FSYNC,))._replace(kind="asker") for name in ("asker", "other")]
        found.append(_consumer("desk", 0, ASKS))
    return tuple(found + _consumers(random))


def _consumers(random: Random) -> list[Part]:
    retry, most = random.choice((0.0, 0.05, 0.2)), random.choice((3, 32))
    both, release = {**ORDERS, "payments": 1}, random.choice((0.0, 0.1))
    found = [
        _consumer("billing", number, both, retry=retry, release=release, max_messages=most)
        for number in range(random.randint(1, 2))
    ]
    if random.random() < 0.4:
        found.append(_consumer("reds", 0, ORDERS))
    if random.random() < 0.4:
        found += [_consumer("bykey", number, ORDERS) for number in range(2)]
    if random.random() < 0.3:
        found.append(_consumer("strict", 0, ORDERS, reject=0.1))
    if random.random() < 0.2:
        found.append(_consumer("idle", 0, ORDERS))
    return found


def _sender(name: str, topics: dict[str, int], pause_ms: int, durability: tuple[int, ...], **more: Any) -> Part:
    return Part("sender", name, {"topics": topics, "pause_ms": pause_ms, "durability": durability, **more})


def _consumer(group: str, number: int, topics: dict[str, int], **more: Any) -> Part:
    return Part("consumer", f"{group}-{number}", {"group": group, "topics": topics, **more})


def _fault(random: Random, length_ms: int, parts: tuple[Part, ...]) -> Fault:
    at_ms, chance = random.randint(100, length_ms - 100), random.random()
    for_ms = random.choice((50, 400, 2_000))
    if chance < 0.35:
        kind = random.choice(ENDS)
        return Fault(kind, at_ms, random.choice((20, 500, 1_500)), {"calls": random.randint(1, 60)})
    if chance < 0.7:
        operations, code = random.choice(IO_FAULTS)
        share = random.choice((0.05, 0.3, 1.0))
        if operations[0] in AT_STARTS:
            for_ms, share = 2_000, 1.0
        path = (
            random.choice(("", "", ".seg", ".idx", ".dup", "state"))
            if operations[0] in ("read", "open", "write")
            else ""
        )
        return Fault("calls", at_ms, for_ms, {"operations": operations, "code": code, "share": share, "path": path})
    kind = random.choice(OTHERS)
    options: dict[str, Any] = {}
    if kind.startswith("clock"):
        options["step_ms"] = random.choice((50, 2_000, 60_000, 5_400_000)) * (-1 if kind == "clock_back" else 1)
    elif kind == "short_writes":
        options["bytes"] = random.choice((1, 100, 700))
    elif kind in ("slow_sync", "slow_tasks"):
        options["ms"] = random.choice((100, 1_000))
    elif kind in ("leave", "slow_reader"):
        options.update(name=random.choice(parts).name, ms=random.choice((100, 2_500)))
    elif kind == "config_unreadable":
        options["kill"] = random.random() < 0.5
    elif kind == "reset":
        options.update(group="billing", to="earliest")
    elif kind == "bad_sector":
        options.update(share=random.random(), size=random.choice((512, 4096)))
    return Fault(kind, at_ms, for_ms, options)
