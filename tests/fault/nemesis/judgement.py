"""The verdict on a nemesis run: what its faults allow is taken off, and the brokers' logs are compared byte for byte."""

from collections.abc import Iterable
from pathlib import Path

from tests.fault.nemesis.site import SYNCED_STREAMS, Site
from tests.fault.replicated.plan import planned
from tests.fault.replicated.records import SENT, RecordReader, SentRecord
from tests.fault.replicated.verdict import ReplicatedVerdict
from tests.waiting import until

EQUAL_S = 30.0
HEADER_BYTES = 64
UNSYNCED_S = 1.0
"""A power cut of all brokers takes what was not synced. They sync every 0.2 s, on a machine that is busy."""
IN_FLIGHT_S = 0.05
"""An answer that left while the power was cut may be about bytes that the cut took."""


def judge(site: Site) -> ReplicatedVerdict:
    """The load's verdict without what the faults allow: see `may_be_lost`, and early messages of a wrong clock."""
    verdict = site.load.finish()
    answered = _answered(site.load.folder / "sent", {each[-2:] for each in verdict.lost})
    allowed = {name for name, answered_s in answered.items() if may_be_lost(site.cut_s, name[0], answered_s)}
    taken = len(allowed)
    verdict.lost = [each for each in verdict.lost if each not in allowed]
    verdict.undelivered = [each for each in verdict.undelivered if each[1:] not in allowed]
    verdict.unfinished = [each for each in verdict.unfinished if each[1:] not in allowed]
    verdict.dead_letters = [each for each in verdict.dead_letters if tuple(each[1:]) not in allowed]
    verdict.early = [each for each in verdict.early if not _is_within(site.stepped_ms, each[1].at_ms)]
    print(f"{taken} messages that no disk had were taken by power cuts of all brokers")
    return verdict


def _answered(path: Path, names: set[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """Times of the answers to these messages."""
    records = (SentRecord(*each) for each in RecordReader(path, SENT).new()) if names else ()
    return {(each.stream, each.number): each.answered_s for each in records if (each.stream, each.number) in names}


def may_be_lost(cuts: Iterable[tuple[float, float]], stream: int, answered_s: float) -> bool:
    """Whether a power cut of all brokers may take a message that was acknowledged then."""
    before_s = IN_FLIGHT_S if stream in SYNCED_STREAMS else UNSYNCED_S
    return any(begin_s - before_s <= answered_s <= end_s + IN_FLIGHT_S for begin_s, end_s in cuts)


def _is_within(times: Iterable[tuple[int, int]], at_ms: int) -> bool:
    return any(begin <= at_ms <= end + 1000 for begin, end in times)


def failed(site: Site, first: int) -> tuple[int, int]:
    """Messages that were not acknowledged since the `first` one: (all but delayed ones, delayed ones)."""
    found = site.load.refused[first:]
    delayed = sum(planned(each.stream, each.number).delay_ms > 0 for each in found)
    return len(found) - delayed, delayed


def wait_equal_logs(site: Site) -> int:
    """Until all brokers have the same files of the log, byte for byte; returns the number of bytes."""
    logs = EqualLogs([disk.data / "log" for disk in site.disks.values()])
    differences: list[str] = []

    def are_equal() -> bool:
        differences.append(logs.difference())
        return not differences[-1]

    try:
        until(are_equal, "the brokers' logs are equal", EQUAL_S)
    except AssertionError:
        raise AssertionError(f"the brokers' logs differ: {differences[-1]}") from None
    return logs.size_bytes


class EqualLogs:
    """Compares directories. Segments that were equal once, and are not the last one, are not read again."""

    def __init__(self, directories: list[Path]) -> None:
        self._directories = directories
        self._equal: set[str] = set()

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._directories[0].glob("*.seg"))

    def difference(self) -> str:
        """The first one; empty: there is none."""
        names = [self._names(each) for each in self._directories]
        if any(each != names[0] for each in names):
            return f"segments {names}"
        for name in names[0]:
            if name in self._equal:
                continue
            first, *others = [_content(each / name) for each in self._directories]
            for other in others:
                if other != first:
                    return f"{name}: {_where(first, other)}"
            if name != names[0][-1]:
                self._equal.add(name)
        return ""

    def _names(self, directory: Path) -> list[str]:
        """Segments with batches. The next one is prepared ahead, with a header that counts once it is used."""
        names = sorted(path.name for path in directory.glob("*.seg"))
        return [name for name in names if name in self._equal or len(_content(directory / name)) > HEADER_BYTES]


def _content(segment: Path) -> bytes:
    """Without the room that is not written yet."""
    return segment.read_bytes().rstrip(b"\0")


def _where(first: bytes, other: bytes) -> str:
    shared = next(
        (at for at, (one, two) in enumerate(zip(first, other, strict=False)) if one != two), min(len(first), len(other))
    )
    around = slice(max(0, shared - 16), shared + 80)
    return f"equal up to {shared} of {len(first)} and {len(other)}: {first[around]!r} and {other[around]!r}"
