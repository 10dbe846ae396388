"""Removes old ranges of an archive by policy. The manifest keeps their entries, so a prune is no gap and no fault.

Per queue, ranges are pruned from the oldest on, without a hole: an entry is written first, without files, then its files
are removed. What a crash between the two leaves is removed by the next job.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from pipeline.archive.leftovers import leftovers
from pipeline.archive.manifest import RangeEntry, hour_of, read_manifest, write_entry
from pipeline.archive.place import ArchivePlace

HOUR_MS = 3_600_000


class PrunePolicy(NamedTuple):
    """What an archive keeps; None: no limit.

    Attributes:
        age_ms_max: a range is pruned when the hour of its newest rows ended longer ago.
        bytes_max: of the files of all topics together. The oldest ranges are pruned first.
    """

    age_ms_max: int | None = None
    bytes_max: int | None = None


class PrunePlan(NamedTuple):
    """
    Attributes:
        entries: to prune, the oldest of each queue first.
        size_bytes: of their files; `kept_bytes`: of the others.
    """

    entries: list[RangeEntry]
    size_bytes: int
    kept_bytes: int

    @property
    def messages(self) -> int:
        return sum(each.count for each in self.entries)


def plan_prune(url: str, topics: Sequence[str], policy: PrunePolicy, now_ms: int) -> PrunePlan:
    """What the policy removes of these topics, or of all. Raises ArchiveDamaged."""
    place = ArchivePlace(url)
    entries = [each for each in read_manifest(place, topics) if not each.pruned_ms]
    sizes = {
        name: size for topic in {each.topic for each in entries} for name, size in place.sizes(f"topic={topic}").items()
    }
    chosen = chosen_entries(entries, sizes, policy, now_ms)
    total = sum(size_of(each, sizes) for each in entries)
    pruned = sum(size_of(each, sizes) for each in chosen)
    return PrunePlan(chosen, pruned, total - pruned)


def run_prune(url: str, plan: PrunePlan, now_ms: int) -> None:
    """Prune. A run that died is completed by the next one."""
    place = ArchivePlace(url)
    for name in leftovers(place, sorted({each.topic for each in plan.entries})) if plan.entries else ():
        place.remove(name)
    for entry in plan.entries:
        write_entry(place, replace(entry, files=(), pruned_ms=now_ms))
        for name in entry.files:
            place.remove(name)


def chosen_entries(
    entries: Sequence[RangeEntry], sizes: Mapping[str, int], policy: PrunePolicy, now_ms: int
) -> list[RangeEntry]:
    """The entries that a policy removes: a prefix of each queue."""
    queues: dict[tuple[str, int], list[RangeEntry]] = defaultdict(list)
    for each in entries:
        queues[each.topic, each.queue].append(each)
    chosen: list[RangeEntry] = []
    if policy.age_ms_max is not None:
        until_ms = now_ms - policy.age_ms_max
        for own in queues.values():
            chosen += takewhile(lambda each: end_ms(each) <= until_ms, own)
    if policy.bytes_max is not None:
        done = set(chosen)
        left = sum(size_of(each, sizes) for each in entries if each not in done)
        for each in _oldest([[each for each in own if each not in done] for own in queues.values()]):
            if left <= policy.bytes_max:
                break
            chosen.append(each)
            left -= size_of(each, sizes)
    return chosen


def end_ms(entry: RangeEntry) -> int:
    """When the hour of the newest rows ended; 0 without a row."""
    newest = max(map(hour_of, entry.files), default="")
    if not newest:
        return 0
    return int(datetime.fromisoformat(f"{newest}:00").replace(tzinfo=UTC).timestamp() * 1000) + HOUR_MS


def size_of(entry: RangeEntry, sizes: Mapping[str, int]) -> int:
    return sum(sizes.get(name, 0) for name in entry.files)


def _oldest(queues: Sequence[Sequence[RangeEntry]]) -> Iterator[RangeEntry]:
    """All entries, by the time of their newest rows; those of a queue stay in order."""
    heads = [(end_ms(own[0]), number, 0) for number, own in enumerate(queues) if own]
    heapq.heapify(heads)
    while heads:
        _, number, at = heapq.heappop(heads)
        yield queues[number][at]
        if at + 1 < len(queues[number]):
            heapq.heappush(heads, (end_ms(queues[number][at + 1]), number, at + 1))
