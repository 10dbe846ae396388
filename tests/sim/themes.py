"""Themes: settings, clients and faults that belong together and that chance alone draws together too rarely.

A theme changes a scenario that was drawn without it. What it adds comes from the same seed.
"""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

from engine.link import layout
from tests.sim.scenario import Fault, Part, Scenario

Theme = Callable[[Random, Scenario], Scenario]

ORDERS = {"orders": 3}
SMALL_SEGMENT = 16 << 10
ENDS = ("kill", "kill_in_call", "power_cut", "power_cut_in_call", "stop", "config_late")


def refused_writes(random: Random, scenario: Scenario) -> Scenario:
    """Frames larger than the rest of a segment, and writes of which some find the disk full.

    So the first part of a frame is stored and the rest is not, and ids are refused that come again.
    """
    durability = random.choice(((layout.FSYNC,), (layout.MEMORY, layout.FSYNC)))
    bulk = Part("sender", "bulk", {"topics": ORDERS, "pause_ms": 250, "durability": durability, "bytes_max": 3_000})
    once = Part("sender", "repeated", {"topics": ORDERS, "pause_ms": 80, "durability": durability, "check_ids": True})
    options = {"operations": ("write",), "code": errno.ENOSPC, "path": ".seg"}
    faults = [
        Fault(
            "calls", _time(random, scenario), random.choice((200, 800)), {**options, "share": random.choice((0.3, 0.5))}
        )
        for _ in range(2)
    ]
    return _with(scenario, "refused writes", [bulk, once], faults, segment_bytes=SMALL_SEGMENT)


def closed_segments(random: Random, scenario: Scenario) -> Scenario:
    """Delayed messages in sealed segments that cannot be opened when they are due; no restart reads them again."""
    options = {"topics": ORDERS, "pause_ms": 60, "durability": (layout.FSYNC,), "bytes_max": 1_500}
    fault = Fault(
        "calls", _time(random, scenario), random.choice((400, 2_000)),
        {"operations": ("open",), "code": errno.EMFILE, "share": random.choice((0.5, 1.0)), "path": ".seg"},
    )  # fmt: skip
    calm = replace(scenario, faults=tuple(each for each in scenario.faults if each.kind not in ENDS))
    later = Part("delayed", "much-later", options)
    return _with(calm, "closed segments", [later], [fault], segment_bytes=SMALL_SEGMENT, sealed_open_max=1)


SHORT_MS, LONG_MS = (200, 600, 1_500), (4_000, 8_000)
RETAINED = ("orders", "payments", "asks", "seldom", "fresh-*")


def short_retention(random: Random, scenario: Scenario) -> Scenario:
    """Segments are deleted while groups lag, delayed messages are pending, leases run and queues are idle."""
    changed = random.choice(RETAINED)
    change = Fault(
        "retention", _time(random, scenario), 0, {"topic": changed, "value": _limits(random, SHORT_MS + LONG_MS)}
    )
    lost = Fault("state_lost", _time(random, scenario), 1_000, {"how": random.choice(("kill", "stop", "power_cut"))})
    faults = [fault for fault in (change, lost) if random.random() < 0.5]
    if lost in faults and lost.options["how"] == "power_cut":
        faults.append(Fault("slow_sync", max(0, lost.at_ms - 400), 500, {"ms": 1_000}))
    topics = {name: _limits(random, SHORT_MS) for name in RETAINED}
    return _retained(random, scenario, "short retention", topics, faults, random.choice(SHORT_MS))


def long_retention(random: Random, scenario: Scenario) -> Scenario:
    """Topics whose messages are kept for longer than others', while definitions are lost or the clock is wrong."""
    topics = {name: _limits(random, LONG_MS) for name in RETAINED}
    kind = random.choice(("config_lost", "config_unreadable", "config_unreadable", "clock_ahead"))
    options: dict[str, object] = {"step_ms": 5_400_000} if kind == "clock_ahead" else {"kill": random.random() < 0.7}
    fault = Fault(kind, random.randint(scenario.length_ms // 3, scenario.length_ms), 1_500, options)
    return _retained(random, scenario, "long retention", topics, [fault], SHORT_MS[0])


def _limits(random: Random, ages_ms: tuple[int, ...]) -> dict[str, int]:
    by_size = {"retention_bytes": random.choice((20_000, 100_000))} if random.random() < 0.2 else {}
    return {"retention_ms": random.choice(ages_ms), **by_size}


def _retained(
    random: Random, scenario: Scenario, theme: str, topics: dict[str, dict[str, int]], faults: list[Fault], default_ms: int
) -> Scenario:  # fmt: skip
    slow = {"work_ms": 2_000, "max_messages": 3} if random.random() < 0.4 else {}
    seldom, durability = {"seldom": 2}, (layout.FSYNC,)
    parts = tuple(
        each._replace(options={**each.options, **slow, "topics": {**each.options["topics"], **seldom}})
        if each.kind == "consumer" and each.options["group"] == "billing"
        else each
        for each in scenario.parts
    )
    added = [
        Part("sender", "seldom", {"topics": seldom, "pause_ms": 900, "durability": durability}),
        Part(
            "delayed", "deferred", {"topics": ORDERS, "pause_ms": 300, "durability": durability, "delay_ms_max": 8_000}
        ),
    ]
    return _with(
        replace(scenario, parts=parts, topics=topics), theme, added, faults, segment_bytes=SMALL_SEGMENT,
        retention_ms=default_ms, delete_interval_ms=random.choice((20, 300)),
    )  # fmt: skip


UNORDERED = ("clock_back", "clock_ahead", "config_late", "config_lost", "disk_full")
"""Faults after which a group's order by key does not hold while keys move."""


def growth(random: Random, scenario: Scenario) -> Scenario:
    """A topic gets more queues under a backlog of groups with and without order by key, with ends of the process."""
    calm = replace(scenario, faults=tuple(each for each in scenario.faults if each.kind not in UNORDERED))
    grow_ms = random.randint(300, max(301, scenario.length_ms * 2 // 3))
    faults = [Fault("grow", grow_ms, 0, {"topic": "orders", "queues": random.choice((4, 5, 7))})]
    if random.random() < 0.3:
        # By then all clients have followed the first one.
        faults.append(Fault("grow", grow_ms + random.randint(400, 2_000), 0, {"topic": "orders", "queues": 11}))
    if random.random() < 0.6:
        kind = random.choice(("kill", "power_cut", "stop"))
        faults.append(Fault(kind, grow_ms + random.randint(0, 1_500), 500, {}))
    durability = random.choice(((layout.FSYNC,), (layout.MEMORY, layout.FSYNC)))
    moving = Part("sender", "moving", {"topics": ORDERS, "pause_ms": 80, "durability": durability, "keys": 9})
    options = {"group": "bykey", "topics": ORDERS, "work_ms": random.choice((300, 1_000)), "max_messages": 5}
    slow = [Part("consumer", f"bykey-{number}", options) for number in (2, 3)]
    return _with(calm, "growth", [moving, *slow], faults)


def unreadable_end(random: Random, scenario: Scenario) -> Scenario:
    """The disk cannot read the beginning of the last segment, at a start that replays the whole log."""
    at_ms = _time(random, scenario)
    faults = [
        Fault("state_lost", at_ms, 500, {"how": random.choice(("kill", "power_cut"))}),
        Fault("bad_sector", at_ms + 1, 0, {"is_last": True, "size": SMALL_SEGMENT}),
    ]
    return _with(
        scenario, f"{scenario.theme}, unreadable end".removeprefix(", "), [], faults, segment_bytes=SMALL_SEGMENT
    )


def cut_deletions(random: Random, scenario: Scenario) -> Scenario:
    """Syncs are slow while segments are deleted, and the power is cut before they end; the log is all that is left."""
    faults: list[Fault] = []
    for at_ms in range(random.randint(500, 900), scenario.length_ms, random.randint(700, 1_100)):
        slow_ms = random.randint(100, 400)
        faults.append(Fault("slow_sync", at_ms - slow_ms, slow_ms + 50, {"ms": 1_000}))
        faults.append(Fault("state_lost", at_ms, 100, {"how": "power_cut"}))
    limits = {name: {"retention_ms": 200} for name in RETAINED}
    parts = [Part("sender", "short-lived", {"topics": ORDERS, "pause_ms": 30, "durability": (layout.MEMORY,)})]
    return _with(
        replace(scenario, topics=limits), f"{scenario.theme}, cut deletions".removeprefix(", "), parts, faults,
        segment_bytes=SMALL_SEGMENT, retention_ms=200, delete_interval_ms=20,
    )  # fmt: skip


def copied_sources(random: Random, scenario: Scenario) -> Scenario:
    """Two copiers per source and a zombie, with ends of the process; at times under retention."""
    durability = random.choice(((layout.FSYNC,), (layout.MEMORY, layout.FSYNC), (layout.MEMORY,)))
    options = {"durability": durability, "pause_ms": random.choice((30, 100))}
    parts = [
        Part("copier", f"copier-{queue}-{number}", {**options, "queue": queue, "is_zombie": number == 2})
        for queue in range(random.randint(1, 2))
        for number in range(3)
    ]
    faults = [
        Fault(random.choice(("kill", "kill", "power_cut", "stop", "kill_in_call", "state_lost")), _time(random, scenario), 300,
              {"calls": random.randint(1, 40), "how": random.choice(("kill", "stop"))})
        for _ in range(random.randint(1, 3))
    ]  # fmt: skip
    found = _with(
        scenario, f"{scenario.theme}, copied sources".removeprefix(", "), parts, faults,
        segment_bytes=random.choice((SMALL_SEGMENT, SMALL_SEGMENT, 64 << 10)),
    )  # fmt: skip
    parts_read = tuple(
        each._replace(options={**each.options, "topics": {**each.options["topics"], "copied": 2}})
        if each.kind == "consumer" and each.options["group"] == "billing"
        else each
        for each in found.parts
    )
    topics = {**found.topics, "copied": _limits(random, SHORT_MS)} if found.topics else found.topics
    return replace(found, parts=parts_read, topics=topics)


def withdrawn_requests(random: Random, scenario: Scenario) -> Scenario:
    """Askers that wait briefly, a group that comes late, and a clock that is set, at times twice."""
    at_ms, step_ms = random.randint(1_000, 4_000), random.choice((60_000, 5_400_000))
    faults = [Fault("clock_back", at_ms, 0, {"step_ms": -step_ms})]
    if random.random() < 0.5:
        faults.append(Fault("clock_ahead", random.randint(300, at_ms), 0, {"step_ms": step_ms // 2}))
    asks, wait_ms = {"asks": 2}, random.choice((100, 150, 700))
    options = {"topics": asks, "pause_ms": 150, "durability": (layout.FSYNC,), "wait_ms": wait_ms}
    parts = [Part("asker", name, options) for name in ("hasty", "hurried")]
    parts.append(Part("consumer", "late-0", {"group": "late", "topics": asks, "work_ms": 6_000, "max_messages": 1}))
    longer = replace(scenario, length_ms=max(scenario.length_ms, 8_000))
    return _with(longer, f"{scenario.theme}, withdrawn requests".removeprefix(", "), parts, faults)


def _time(random: Random, scenario: Scenario) -> int:
    return random.randint(300, max(301, scenario.length_ms - 100))


def _with(scenario: Scenario, theme: str, parts: list[Part], faults: list[Fault], **log: object) -> Scenario:
    return replace(
        scenario, theme=theme, parts=(*scenario.parts, *parts), log={**scenario.log, **log},
        faults=tuple(sorted((*scenario.faults, *faults), key=lambda each: each.at_ms)),
    )  # fmt: skip


THEMES: tuple[Theme, ...] = (
    refused_writes, closed_segments, short_retention, short_retention, long_retention, growth,
)  # fmt: skip
