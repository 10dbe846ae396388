"""The manifest of an archive: what is missing, and what does not fit together."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.manifest import RangeEntry, manifest_faults, missing_ranges
from pipeline.source.ranges import OffsetRange


def entry(start, end, queue=0):
    return RangeEntry("t", queue, start, end, end - start, "", ())


@given(st.lists(st.integers(1, 30), max_size=6), st.data(), st.integers(1, 40))
def test_missing_ranges_and_entries_cover_the_wanted_range_once(sizes, data, range_max):
    entries, at = [], 0
    for size in sizes:
        at += data.draw(st.integers(0, 20))
        entries.append(entry(at, at + size))
        at += size
    wanted = OffsetRange("t", 0, data.draw(st.integers(0, 40)), 200)
    missing = missing_ranges([wanted], entries, range_max)
    assert all(0 < each.count <= range_max for each in missing)
    archived = {offset for each in entries for offset in range(each.start, each.end)}
    covered = [offset for each in missing for offset in range(each.start, each.end)]
    assert covered == [offset for offset in range(wanted.start, wanted.end) if offset not in archived]


def test_a_gap_and_an_overlap_are_told_for_the_queue_that_has_them():
    assert manifest_faults([entry(0, 5), entry(5, 9), entry(3, 4, queue=1)]) == []
    assert manifest_faults([entry(0, 5), entry(7, 9), entry(8, 10)]) == [
        "topic t queue 0: gap from 5 to 7",
        "topic t queue 0: overlap from 9 to 8",
    ]
