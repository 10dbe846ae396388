"""The screen of `penstock top` as lines of text, for any size of terminal. Nothing is asked or printed here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.overview.observing import Observation, ObservedLag, ProcessPlace, rates_between, total_lag

MARK = "…"
GROUPS_MIN = 3
PROCESS_HEAD = f"{'PROCESS':<28} {'STATE':<10} {'CPU':>6} {'MEMORY':>9} {'IN/S':>9} {'OUT/S':>9}"
GROUP_HEAD = f"{'GROUP':<28} {'LAG':>13} {'LAG/S':>9} {'IN FLIGHT':>11} {'OLDEST':>9}"


Formatter = Callable[[float | None], str]


@dataclass(frozen=True)
class FrameFigures:
    """How figures are written: as the other tables of the command line write them."""

    size: Formatter
    rate: Formatter
    duration: Formatter


def frame(
    title: str, places: Sequence[ProcessPlace], before: Observation | None, seen: Observation, figures: FrameFigures,
    width: int, height: int, now_s: float,
) -> list[str]:  # fmt: skip
    """At most `height` lines of at most `width` characters: a head, the processes, the engines' logs, then groups."""
    clock = datetime.fromtimestamp(now_s, UTC).strftime("%H:%M:%SZ")
    lines = [f"penstock top  {clock}  {title}", *totals(places, before, seen, figures), "", PROCESS_HEAD]
    room = height - len(lines) - 2
    processes = process_lines(places, before, seen, figures)
    lines += shortened(processes, max(1, room - GROUPS_MIN - 1), "processes")
    groups = group_lines(before, seen, figures)
    if groups and height - len(lines) >= GROUPS_MIN:
        lines += ["", GROUP_HEAD]
        lines += shortened(groups, height - len(lines), "groups")
    return [line if len(line) <= width else line[: width - 1] + MARK for line in lines[:height]]


def shortened(lines: list[str], room: int, what: str) -> list[str]:
    """The lines that fit; the last one says how many do not."""
    if len(lines) <= room:
        return lines
    return [*lines[: max(room - 1, 0)], f"{MARK} {len(lines) - max(room - 1, 0):,} more {what}"]


def totals(
    places: Sequence[ProcessPlace], before: Observation | None, seen: Observation, figures: FrameFigures
) -> list[str]:
    """Messages per second of the deployment, and what its engines hold."""
    rates = rates_between(before, seen)

    def of(kind: str, name: str) -> float | None:
        found = [rates[each.name][name] for each in places if each.kind == kind and name in rates.get(each.name, {})]
        return sum(found) if found else None

    engines = [each for each in seen.engines.values() if each.leads]
    free = [each.status["disk"]["free_bytes"] for each in engines if "disk" in each.status]
    dead = sum(each.status.get("dead_letters", 0) for each in engines)
    delayed = sum(each.status.get("timers_pending", 0) for each in engines)
    first = f"sent {figures.rate(of('producer_proxy', 'sent_per_s'))}/s"
    first += f"   delivered {figures.rate(of('consumer_proxy', 'delivered_per_s'))}/s"
    first += (
        f"   topics {sum(each.topics for each in engines):,}   groups {sum(len(each.groups) for each in engines):,}"
    )
    second = f"log {figures.size(sum(each.status.get('end_position', 0) for each in engines))}"
    second += f"   disk free {figures.size(min(free)) if free else '-'}   delayed {delayed:,}   dead letters {dead:,}"
    faults = [each.fault for each in seen.engines.values() if each.fault]
    return [first, second, *(f"! {fault}" for fault in faults[:2])]


def process_lines(
    places: Sequence[ProcessPlace], before: Observation | None, seen: Observation, figures: FrameFigures
) -> list[str]:
    rates = rates_between(before, seen)
    lines = []
    for place in places:
        pages, own = seen.pages[place.name], rates.get(place.name, {})
        incoming = own.get("sent_per_s", own.get("stored_per_s"))
        state = "ready" if not pages.fault else "not ready" if pages.version else "unseen"
        name = f"{place.kind.removesuffix('_proxy')}@{place.host}:{place.port}"
        lines.append(
            f"{fitted(name, 28)} {state:<10} {cpu(place.name, before, seen):>6} "
            f"{figures.size(pages.metrics.get('process_resident_memory_bytes')):>9} "
            f"{figures.rate(incoming):>9} {figures.rate(own.get('delivered_per_s')):>9}"
        )
    return lines


def cpu(name: str, before: Observation | None, seen: Observation) -> str:
    """Share of one processor since the last look."""
    metric = "process_cpu_seconds_total"
    if before is None or name not in before.pages or seen.at_s <= before.at_s:
        return "-"
    old, new = before.pages[name].metrics.get(metric), seen.pages[name].metrics.get(metric)
    if old is None or new is None or new < old:
        return "-"
    return f"{(new - old) / (seen.at_s - before.at_s):.0%}"


def group_lines(before: Observation | None, seen: Observation, figures: FrameFigures) -> list[str]:
    """The groups with the largest lag first; how fast it grows, or shrinks."""
    old: Mapping[str, ObservedLag] = total_lag(before) if before is not None else {}
    lags = total_lag(seen)
    lines = []
    for name, lag in sorted(lags.items(), key=lambda item: (-item[1].messages, item[0])):
        change = "-"
        if before is not None and name in old and seen.at_s > before.at_s:
            per_s = (lag.messages - old[name].messages) / (seen.at_s - before.at_s)
            change = f"{per_s:+,.0f}" if round(per_s) else "0"
        oldest = figures.duration(lag.oldest_s) if lag.messages or lag.in_flight else "-"
        lines.append(f"{fitted(name, 28)} {lag.messages:>13,} {change:>9} {lag.in_flight:>11,} {oldest:>9}")
    return lines


def fitted(text: str, width: int) -> str:
    """The text in exactly this width."""
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + MARK
