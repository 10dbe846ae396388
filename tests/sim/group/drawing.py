"""Drawing: the scenario of a seed of a group."""

from dataclasses import replace
from random import Random
from typing import Any

from tests.sim.drawing import IO_FAULTS
from tests.sim.group.scenario import GroupScenario
from tests.sim.scenario import Fault

NAMES = "abc"
CLASSES = "memory", "fsync", "replicated", "everywhere"
CONTROLLERS = ("c1", "c2")
ROLES = ("master", "master", "slave", "a", "b", "c")
ENDS = (("kill", 5), ("kill_in_call", 3), ("stop", 1), ("kill_all", 1))
CUTS = (("power_cut", 4), ("power_cut_in_call", 2), ("power_cut_all", 3))
NETWORK = (("partition", 5), ("break_links", 2), ("half_open", 1), ("slow_network", 1))
PAUSES = (("pause", 4), ("pause_controller", 1), ("kill_controller", 1))
COORDINATION = (("contact_lost", 3), ("session_expired", 1), ("read_only", 1), ("uncertain", 2))
MACHINES = (("slow_disk", 2), ("disk_full", 1), ("calls", 3), ("clock_step", 1))
OPERATOR = (("switch", 1),)
FAMILIES = {
    "ends": ENDS, "cuts": CUTS, "network": NETWORK, "pauses": PAUSES, "coordination": COORDINATION,
    "machines": MACHINES, "operator": OPERATOR,
}  # fmt: skip
DURATIONS_MS = (50, 300, 1_000, 1_000, 2_500)
SHORT_STEP_MS = 10_000
THEME_SHARE = SWITCHES_SHARE = 0.1


def draw(seed: int) -> GroupScenario:
    """The scenario of a seed.

    Every sixtieth is long, every third is of an aimed course, and in every fourth slaves are read from.
    """
    random = Random(f"group {seed}")
    if aimed := AIMED.get(seed % 40):
        return aimed(random, seed)
    is_long = seed % 60 == 29
    length_ms = random.randint(8_000, 15_000) if is_long else random.randint(800, 2_800)
    brokers, controllers = random.choice((2, 2, 3)), random.choice((1, 2))
    # Without power cuts every class of message has to be kept, so most runs have none.
    families = [name for name in FAMILIES if name != "cuts"] + ["ends", "network", "pauses"]
    if random.random() < 0.4:
        families += ["cuts"] * 4
    count = random.randint(5, 12) if is_long else random.randint(1, 4)
    names = list(NAMES[:brokers])
    faults = [_fault(random, random.choice(families), length_ms, names, controllers) for _ in range(count)]
    drift = random.choice((0, 0, 1_000, 50_000))
    log = {"segment_bytes": random.choice((16, 32, 64, 256)) << 10, "pending_max": random.choice((3, 40, 50_000))}
    if seed % 4 == 2:
        log["cold_distance_bytes"] = 64 << 10
    faults += _theme(random, names) if not is_long and random.random() < THEME_SHARE else []
    steps = any(
        each.options.get("step_ms", 0) > SHORT_STEP_MS for each in faults
    )  # what is due then is due an hour late
    scenario = GroupScenario(
        seed, length_ms, brokers, controllers, tuple(sorted(faults, key=lambda each: each.at_ms)),
        tuple(random.randint(-drift, drift) for _ in range(5)), random.choice((0, 2_000, 2_000)),
        timers=random.random() < 0.6 and not steps, pause_ms=random.choice((30, 90, 240)),
        tick_ms=random.choice((20, 40, 60)), bytes_max=random.choice((30, 300, 2_000)),
        retry=random.choice((0.0, 0.1)), threads=random.random() < 0.9, log=log,
        node={"tick_ms": 50, "progress_ms": 200}, slave_reads=seed % 4 == 2, topics=_topics(random),
    )  # fmt: skip
    return replace(scenario, faults=tuple(sorted([*faults, *_switches(seed, length_ms)], key=lambda each: each.at_ms)))


def _topics(random: Random) -> tuple[str, ...]:
    """All durability classes in half of the seeds, else two of them."""
    return CLASSES if random.random() < 0.5 else tuple(sorted(random.sample(CLASSES, 2), key=CLASSES.index))


def _switches(seed: int, length_ms: int) -> list[Fault]:
    """Planned switches one after the other, in some seeds; a new master may end at once."""
    random = Random(f"group switches {seed}")
    if random.random() >= SWITCHES_SHARE:
        return []
    times_ms = [random.randint(500, max(501, length_ms - 100)) for _ in range(random.randint(2, 5))]
    found = [Fault("switch", at_ms, 1, {"who": "master"}) for at_ms in times_ms]
    if random.random() < 0.5:
        kind, after_ms = random.choice(("kill", "pause", "power_cut")), random.choice((3, 10, 30, 600))
        found.append(Fault(kind, times_ms[0] + after_ms, 1_000, {"who": "master"}))
    return found


def _theme(random: Random, names: list[str]) -> list[Fault]:
    """Courses that chance alone draws too rarely: power cuts one after the other while disks are slow."""
    at_ms, slow_ms = random.randint(400, 1_200), random.choice((200, 900))
    slow = [Fault("slow_disk", at_ms - 300, 3_000, {"who": name, "ms": slow_ms}) for name in names]
    next_ms = at_ms + random.choice((random.randint(5, 60), random.randint(850, 1_300)))
    first = random.choice(("power_cut", "power_cut", "kill"))
    return [
        *slow, Fault(first, at_ms, random.choice((1_000, 2_500)), {"who": "master"}),
        Fault("power_cut", next_ms, random.choice((300, 1_000)), {"who": "master"}),
    ]  # fmt: skip


def _rolls(random: Random, seed: int) -> GroupScenario:
    """Small segments, large messages and slow disks: power cuts find several full segments that are not synced."""
    names = list(NAMES[: random.choice((2, 2, 3))])
    faults = [Fault("slow_disk", 300, 4_000, {"who": name, "ms": random.choice((200, 900))}) for name in names]
    at_ms = random.randint(500, 900)
    while at_ms < 3_600:
        kind = random.choice(("power_cut_all", "power_cut_all", "power_cut", "kill_all"))
        faults.append(Fault(kind, at_ms, random.choice((50, 300)), {"who": "master"}))
        if random.random() < 0.4:  # the first start after it
            options = {"who": random.choice(names), "calls": random.randint(1, 60)}
            faults.append(Fault("kill_in_call", at_ms + random.randint(50, 400), 50, options))
        at_ms += random.randint(400, 1_200)
    return GroupScenario(
        seed, 4_000, len(names), random.choice((1, 2)), tuple(sorted(faults, key=lambda each: each.at_ms)), (0,) * 5,
        random.choice((0, 2_000)), timers=random.random() < 0.5, pause_ms=20, bytes_max=3_000,
        log={"segment_bytes": 16 << 10, "pending_max": 50_000}, node={"tick_ms": 50, "progress_ms": 200},
    )  # fmt: skip


def _away(random: Random, seed: int) -> GroupScenario:
    """Nothing but a slave that goes, or stands still: the others go on without it. At the end nothing at all happens."""
    names = list(NAMES[: random.choice((2, 3))])
    who, at_ms = names[-1], random.randint(600, 900)
    others = [*names[:-1], "c1", "proxy"]
    kind = random.choice(("kill", "pause", "power_cut", "partition"))
    options: dict[str, Any] = {"who": who}
    if kind == "partition":
        options = {"pairs": [*((who, other) for other in others), *((other, who) for other in others)]}
    return GroupScenario(
        seed, at_ms + 4_000, len(names), 1, (Fault(kind, at_ms, 30_000, options),), (0,) * 5, pause_ms=120,
        log={"segment_bytes": 64 << 10}, node={"tick_ms": 50, "progress_ms": 200}, stall_ms=3_000, still_ms=1_500, timers=False,
    )  # fmt: skip


def _hung(random: Random, seed: int) -> GroupScenario:
    """One member stands still and stays registered, and the others restart meanwhile: the group needs no other help."""
    names = list(NAMES[: random.choice((2, 2, 3))])
    at_ms, stays = random.randint(1_500, 1_900), random.choice((names[0], names[0], names[-1]))
    faults = [Fault("pause", at_ms, 30_000, {"who": stays, "keeps_session": True})]
    for who in names:
        if who != stays:
            faults.append(Fault("kill", at_ms + random.randint(0, 800), random.choice((50, 500)), {"who": who}))
    return GroupScenario(
        seed, at_ms + 6_000, len(names), 1, tuple(sorted(faults, key=lambda each: each.at_ms)), (0,) * 5, session_ms=0,
        pause_ms=60, log={"segment_bytes": 64 << 10}, node={"tick_ms": 50, "progress_ms": 200}, stall_ms=4_000, timers=False,
    )  # fmt: skip


def _restarts(random: Random, seed: int) -> GroupScenario:
    """Brokers end and are back before the controllers, which stand still, have learnt of it."""
    names = list(NAMES[: random.choice((2, 3))])
    at_ms, faults = random.randint(600, 800), []
    for _ in range(3):
        faults += [Fault("pause_controller", at_ms, 600, {"who": who}) for who in CONTROLLERS[:1]]
        kind = random.choice(("kill", "kill", "power_cut", "stop"))
        faults.append(Fault(kind, at_ms + 20, random.choice((1, 50)), {"who": random.choice(("slave", *names))}))
        at_ms += random.randint(700, 1_500)
    return GroupScenario(
        seed, at_ms, len(names), 1, tuple(faults), (0,) * 5, random.choice((0, 2_000)), pause_ms=60, bytes_max=300,
        log={"segment_bytes": 64 << 10, "pending_max": 40}, node={"tick_ms": 50, "progress_ms": 200}, timers=False,
    )  # fmt: skip


def _unheard(random: Random, seed: int) -> GroupScenario:
    """What a slave tells its master arrives late, and clients read from that slave meanwhile."""
    names = list(NAMES[: random.choice((2, 3))])
    at_ms, faults = random.randint(500, 700), []
    for _ in range(3):
        faults.append(Fault("partition", at_ms, random.randint(300, 800), {"pairs": [(random.choice(names[1:]), "a")]}))
        at_ms += random.randint(900, 1_200)
    return GroupScenario(
        seed, at_ms, len(names), 1, tuple(faults), (0,) * 5, pause_ms=30, bytes_max=300, slave_reads=True, timers=False,
        log={"segment_bytes": 64 << 10}, node={"tick_ms": 50, "progress_ms": 200},
    )  # fmt: skip


def _handed_over(random: Random, seed: int) -> GroupScenario:
    """Planned switches under load, while disks are slow; the operator's command may be late, or not be back at all."""
    names = list(NAMES[: random.choice((2, 2, 3))])
    faults = [Fault("slow_disk", 100, 6_000, {"who": name, "ms": random.choice((30, 200))}) for name in names]
    at_ms = random.randint(900, 1_300)
    for _ in range(2):
        options = {"who": "master", "hands_over": 1, "late_ms": random.choice((1, 5, 20, 20, 700, 0))}
        faults.append(Fault("switch", at_ms, 1, options))
        at_ms += random.randint(600, 1_500)
    return GroupScenario(
        seed, at_ms, len(names), 1, tuple(faults), (0,) * 5, pause_ms=15, bytes_max=300, tick_ms=random.choice((20, 60)),
        log={"segment_bytes": 64 << 10}, node={"tick_ms": 50, "progress_ms": 200}, timers=random.random() < 0.5,
    )  # fmt: skip


def _taken_back(random: Random, seed: int) -> GroupScenario:
    """A master that only clients reach fills some small segments; another one leads meanwhile, and the first is cut."""
    names = list(NAMES[: random.choice((2, 3))])
    at_ms, who = random.randint(500, 700), names[0]
    pairs = [pair for other in (*names[1:], "c1") for pair in ((who, other), (other, who))]
    faults = [Fault("partition", at_ms, random.randint(900, 1_300), {"pairs": pairs})]
    for after_ms in (random.randint(1_500, 2_300), random.randint(2_300, 2_900)):
        options = {"who": who, "calls": random.randint(1, 150)}
        faults.append(Fault(random.choice(("kill", "kill_in_call")), at_ms + after_ms, 100, options))
    return GroupScenario(
        seed, at_ms + 3_000, len(names), 1, tuple(faults), (0,) * 5, pause_ms=30, bytes_max=1_500, timers=False,
        log={"segment_bytes": 16 << 10, "pending_max": 50_000}, node={"tick_ms": 50, "progress_ms": 200},
    )  # fmt: skip


def _sent_again(random: Random, seed: int) -> GroupScenario:
    """The links between the proxy and the brokers break or stand still again and again, under load."""
    names = list(NAMES[: random.choice((2, 3))])
    at_ms, faults = random.randint(400, 600), []
    for _ in range(8):
        options: dict[str, Any] = {"between": ["proxy", "a"]}
        if (kind := random.choice(("break_links", "half_open", "partition"))) == "partition":
            options = {"pairs": [random.choice((("proxy", "a"), ("a", "proxy")))]}
        faults.append(Fault(kind, at_ms, random.randint(100, 400), options))
        at_ms += random.randint(60, 500)
    faults.append(Fault("slow_network", 400, at_ms, {"ms": random.choice((10, 30, 100))}))
    return GroupScenario(
        seed, at_ms, len(names), 1, tuple(sorted(faults, key=lambda each: each.at_ms)), (0,) * 5, pause_ms=15,
        log={"segment_bytes": 64 << 10}, node={"tick_ms": 50, "progress_ms": 200}, timers=False,
    )  # fmt: skip


AIMED = {3: _rolls, 13: _rolls, 23: _rolls, 33: _rolls, 8: _away, 28: _away, 17: _restarts, 37: _restarts, 6: _unheard,
         26: _unheard, 15: _handed_over, 35: _taken_back, 19: _sent_again, 39: _hung}  # fmt: skip
"""By the seed's remainder of 40: courses that chance alone draws too rarely."""


def _fault(random: Random, family: str, length_ms: int, names: list[str], controllers: int) -> Fault:
    kinds, weights = zip(*FAMILIES[family], strict=True)
    kind = random.choices(kinds, weights)[0]
    who = random.choice([role for role in ROLES if len(role) > 1 or role in names])
    options: dict[str, Any] = {"who": who}
    for_ms = random.choice(DURATIONS_MS)
    if kind.endswith("_in_call"):
        options["calls"] = random.randint(1, 80)
    elif kind.endswith("_controller"):
        options["who"] = random.choice(CONTROLLERS[:controllers])
    elif kind == "partition":
        options = {"pairs": _pairs(random, [*names, *CONTROLLERS[:controllers], "proxy"])}
    elif kind in ("break_links", "half_open"):
        options = {"between": random.sample([*names, *CONTROLLERS[:controllers], "proxy"], 2)}
    elif kind == "slow_network":
        options["ms"] = random.choice((20, 100, 400))
    elif kind in ("contact_lost", "session_expired"):
        servers = [*names, *CONTROLLERS[:controllers]]
        options = {"names": random.sample(servers, random.choice((1, 1, len(servers))))}
    elif kind == "slow_disk":
        options["ms"] = random.choice((30, 200, 900))
    elif kind == "calls":
        operations, code = random.choice(IO_FAULTS)
        share = random.choice((0.05, 0.3, 1.0))
        options.update(operations=operations, code=code, share=share, path=random.choice(("", "", ".seg", "state")))
    elif kind == "clock_step":
        options["step_ms"] = random.choice((-3_600_000, -2_000, 2_000, 3_600_000))
    return Fault(kind, random.randint(300, max(301, length_ms - 100)), for_ms, options)


def _pairs(random: Random, names: list[str]) -> list[tuple[str, str]]:
    """Directions that are cut: one process from all others or from one, both ways or one way."""
    one = random.choice(names)
    others = [name for name in names if name != one]
    if random.random() < 0.5:
        others = [random.choice(others)]
    away = [(one, other) for other in others]
    back = [(other, one) for other in others]
    return random.choice((away + back, away + back, away, back))
