"""Goodput of a broker by grade, when three times its capacity is offered.

Question: how many messages per second are stored, and with which latency, by grade, while high, normal and low grades
together offer three times the broker's capacity, and how much memory do proxy and engine take? Settings: a real
`penstock up` and a producer proxy whose link to the engine carries LINK_BYTES_PER_S (bench/slow_link.py), so that the
broker is the bottleneck and not the two cores; messages of 2 KiB, MEMORY, calls of one. Capacity: the rate of a closed
loop over the same link, measured first. Offered, in an open loop by one process per grade: high 0.3, normal 1.0 and low
1.7 of that; latency from the planned moment. Excluded: the first seconds (SETTLE_S), in which the bound is found.

    python -m bench.overload [--seconds 60] [--plot docs/runs/overload.svg]

It prints one line; the exit code is 1 when goodput is below 90 % of the capacity, a high message was refused or late,
or memory grew.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.generator import LoadTarget
from bench.instance import BenchInstance, own
from bench.offered import Offered, Slot, Slots
from bench.outcome import commit
from bench.own_proxy import own_proxy
from bench.settings import LoadSettings
from bench.slow_link import SlowLink
from common.admin import topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config import open_store
from common.config.applying import wait_applied
from common.config.definitions import GRADES
from common.contract import Code

LINK_BYTES_PER_S = 1_000_000
BODY_BYTES = 2048
SHARES = {"high": 0.3, "normal": 1.0, "low": 1.7}  # as shares of the capacity
SLOT_S = 0.5
SETTLE_S = 5.0
GOODPUT_LEAST = 0.9
HIGH_P99_S_MAX = 0.75  # twice the bound's 250 ms, for waiting and for sent messages, and 250 ms more for a busy machine
LATE_S_MAX = 0.1
GROWTH_BYTES_MAX = 8 << 20


@dataclass
class OverloadRun:
    """One run.

    Attributes:
        slots: by grade, of the measured time only.
        rss: by process, (seconds since the measured time began, bytes).
    """

    capacity: float
    seconds: float
    slots: dict[str, Slots]
    rss: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def goodput(self) -> float:
        """Messages stored per second, of all grades."""
        return sum(self.total(grade).codes[Code.OK] for grade in SHARES) / self.seconds

    def total(self, grade: str) -> Slot:
        """The sum of a grade's slots."""
        whole = Slot()
        for slot in self.slots[grade].values():
            whole.codes += slot.codes
            whole.latencies_s += slot.latencies_s
            whole.late_s = max(whole.late_s, slot.late_s)
        return whole

    def p99_s(self, grade: str) -> float:
        return percentile(self.total(grade).latencies_s, 0.99)

    @property
    def growth_bytes(self) -> dict[str, int]:
        """Maximum growth of each process' memory since the beginning of the measured time."""
        return {name: max(size for _, size in sizes) - sizes[0][1] for name, sizes in self.rss.items()}

    @property
    def late_s(self) -> float:
        """Maximum delay of the generator. Above LATE_S_MAX the machine was too busy, and the run is invalid."""
        return max(self.total(grade).late_s for grade in SHARES)

    def faults(self) -> list[str]:
        """Broken promises, one sentence each."""
        high = self.total("high").codes
        found = []
        if self.late_s > LATE_S_MAX:
            found.append(f"invalid: calls began up to {self.late_s:.3f} s late")
        if self.goodput < GOODPUT_LEAST * self.capacity:
            found.append(f"goodput {self.goodput:.0f}/s is below {GOODPUT_LEAST:.0%} of {self.capacity:.0f}/s")
        if set(high) != {Code.OK}:
            found.append(f"messages of the high grade were refused: {dict(high)}")
        if self.p99_s("high") > HIGH_P99_S_MAX:
            found.append(f"p99 of the high grade is {self.p99_s('high'):.3f} s")
        found += [
            f"{name} grew by {size >> 20} MiB" for name, size in self.growth_bytes.items() if size > GROWTH_BYTES_MAX
        ]
        return found

    def as_dict(self) -> dict[str, Any]:
        grades = {
            grade: {
                "offered_per_s": round(self.capacity * share),
                "stored_per_s": round(self.total(grade).codes[Code.OK] / self.seconds),
                "codes": {str(int(code)): count for code, count in self.total(grade).codes.items()},
                "p50_ms": round(1e3 * percentile(self.total(grade).latencies_s, 0.5), 1),
                "p99_ms": round(1e3 * self.p99_s(grade), 1),
            }
            for grade, share in SHARES.items()
        }
        growth = {name: round(size / (1 << 20), 1) for name, size in self.growth_bytes.items()}
        return {
            "capacity_per_s": round(self.capacity), "goodput_per_s": round(self.goodput),
            "goodput_share": round(self.goodput / self.capacity, 3),
            "seconds": self.seconds, "late_ms": round(1e3 * self.late_s), "grades": grades, "growth_mib": growth,
        }  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """The percentile by nearest rank; 0.0 without values."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


def measure(
    instance: BenchInstance, seconds: float, *, capacity_s: float = 5.0, settle_s: float = SETTLE_S
) -> OverloadRun:
    """Find the capacity, then offer three times as much for `settle_s` and `seconds`."""
    settings = LoadSettings(
        topics=len(GRADES), queues=4, topic_pattern="overload-%d", durability="memory", size=BODY_BYTES
    )
    names = dict(zip(GRADES, settings.topic_names(), strict=True))
    engine = instance.facts["engine"]["host"], instance.facts["engine"]["port"]
    with instance.prepared(settings) as target, SlowLink(engine, LINK_BYTES_PER_S) as link:
        _set_grades(instance, names)
        with own_proxy(instance, link.address) as proxy:
            target = replace(target, producer=proxy.address)
            capacity = _capacity(target, names["normal"], capacity_s)
            began_s = time.monotonic() + settle_s
            offered = {
                grade: Offered(
                    target, names[grade], share * capacity, settle_s + seconds, body_bytes=BODY_BYTES, slot_s=SLOT_S, began_s=began_s
                )
                for grade, share in SHARES.items()
            }  # fmt: skip
            time.sleep(settle_s)
            rss = _watch({"producer_proxy": proxy.pid, "engine": instance.pids["engine"]}, seconds)
            slots = {grade: each.result() for grade, each in offered.items()}
    last = int(seconds / SLOT_S)
    measured = {grade: {n: slot for n, slot in each.items() if 0 <= n < last} for grade, each in slots.items()}
    return OverloadRun(capacity, seconds, measured, rss)


def _set_grades(instance: BenchInstance, names: dict[str, str]) -> None:
    store = open_store(instance.facts["config"])
    try:
        for grade, name in names.items():
            topics.set_topic(Administrator(store, "bench"), name, TopicSettings(grade=grade))
        wait_applied(store, store.version(), 5.0)
    finally:
        store.close()


def _capacity(target: LoadTarget, topic: str, seconds: float) -> float:
    """Return the messages per second of a closed loop, after its first second."""
    closed = Offered(
        target, topic, 0.0, seconds + 1.0, body_bytes=BODY_BYTES, slot_s=seconds, began_s=time.monotonic() + 1.0, connections=32
    )  # fmt: skip
    return closed.result()[0].codes[Code.OK] / seconds


def _watch(pids: dict[str, int], seconds: float) -> dict[str, list[tuple[float, int]]]:
    """Sample the processes' resident bytes once per slot."""
    sizes: dict[str, list[tuple[float, int]]] = {name: [] for name in pids}
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        for name, pid in pids.items():
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            sizes[name].append((at, pages * 4096))
        time.sleep(SLOT_S)
    return sizes


def draw(run: OverloadRun, path: Path) -> None:
    """Draw stored and refused messages, latency by grade, and memory over time. Needs the extra `plots`."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    colours = {"high": "#1b7f5c", "normal": "#4a5fa5", "low": "#c2571a"}
    figure, (rates, latency, memory) = pyplot.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    for grade, slots in run.slots.items():
        at = [number * SLOT_S for number in sorted(slots)]
        stored = [slots[number].codes[Code.OK] / SLOT_S for number in sorted(slots)]
        p99 = [1e3 * percentile(slots[number].latencies_s, 0.99) for number in sorted(slots)]
        rates.plot(at, stored, color=colours[grade], label=f"{grade}: {SHARES[grade]:g} × capacity offered")
        latency.plot(at, p99, color=colours[grade], label=grade)
    numbers = sorted(set().union(*run.slots.values()))
    stored = [
        sum(each.get(number, Slot()).codes[Code.OK] for each in run.slots.values()) / SLOT_S for number in numbers
    ]
    rates.plot([number * SLOT_S for number in numbers], stored, color="#333333", label="all")
    rates.axhline(run.capacity, color="#9aa5b1", linestyle="--", label="capacity")
    rates.set_ylabel("stored per second")
    latency.set_ylabel("p99 of stored, ms")
    for name, sizes in run.rss.items():
        memory.plot([at for at, _ in sizes], [size / (1 << 20) for _, size in sizes], label=name)
    memory.set_ylabel("resident MiB")
    memory.set_xlabel("seconds")
    for axis in (rates, latency, memory):
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    rates.set_title(f"Three times the capacity: {run.goodput / run.capacity:.0%} of it is used", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="measured")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG")
    options = parser.parse_args()
    with own() as instance:
        run = measure(instance, options.seconds)
    print("overload", f"commit={commit()}", json.dumps(run.as_dict()))
    if options.plot:
        draw(run, options.plot)
    for fault in run.faults():
        print(f"missed: {fault}", file=sys.stderr)
    return 1 if run.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
