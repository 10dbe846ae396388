"""Prunes by age and size: a prefix of each queue, recorded in the manifest."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.manifest import RangeEntry
from pipeline.archive.prune import HOUR_MS, PrunePolicy, chosen_entries, end_ms, size_of

START_MS = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000)


def entry(queue, number, hour):
    moment = datetime.fromtimestamp(START_MS / 1000 + hour * 3600, UTC)
    name = f"topic=t/hour={moment:%Y-%m-%dT%H}/queue-{queue}-{number}.parquet"
    return RangeEntry("t", queue, number * 10, number * 10 + 10, 10, "", (name,))


@st.composite
def archives(draw):
    """Entries of some queues, whose hours do not go back within a queue, and the sizes of their files."""
    entries, sizes = [], {}
    for queue in range(draw(st.integers(1, 3))):
        hour = 0
        for number in range(draw(st.integers(0, 6))):
            hour += draw(st.integers(0, 5))
            made = entry(queue, number, hour)
            entries.append(made)
            sizes[made.files[0]] = draw(st.integers(1, 100))
    return entries, sizes


@given(archives(), st.integers(-5, 60))
def test_age_takes_exactly_what_ended_before(archive, age_hours):
    entries, sizes = archive
    now_ms = START_MS + 40 * HOUR_MS
    chosen = chosen_entries(entries, sizes, PrunePolicy(age_ms_max=age_hours * HOUR_MS), now_ms)
    assert set(chosen) == {each for each in entries if end_ms(each) <= now_ms - age_hours * HOUR_MS}


@given(archives(), st.integers(0, 800))
def test_size_takes_the_oldest_until_the_rest_fits_and_leaves_no_hole(archive, bytes_max):
    entries, sizes = archive
    chosen = chosen_entries(entries, sizes, PrunePolicy(bytes_max=bytes_max), START_MS)
    kept = [each for each in entries if each not in chosen]
    assert sum(size_of(each, sizes) for each in kept) <= bytes_max
    if chosen:
        assert sum(size_of(each, sizes) for each in [*kept, chosen[-1]]) > bytes_max
        assert max(map(end_ms, chosen)) <= min(map(end_ms, kept), default=1 << 60)
    for queue in {each.queue for each in entries}:
        own = [each for each in entries if each.queue == queue]
        assert [each in chosen for each in own] == sorted((each in chosen for each in own), reverse=True)
