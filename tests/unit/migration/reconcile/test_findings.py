"""The drill-down on values: what is missing, doubled or altered is found with its offsets, in any size of memory."""

import random
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from migration.reconcile.comparison import differing_minutes, found_in
from migration.reconcile.findings import DiscrepancyKind, findings
from migration.reconcile.native import differing, ordered
from migration.reconcile.row_sets import WINDOW
from migration.reconcile.rows import REPAIRED, ROW
from migration.reconcile.runs import ID_END, RowRuns
from migration.reconcile.spans import ReadRange, merged


def rows(*values):
    """Rows of (id, content, offset)."""
    return b"".join(ROW.pack(*each, 1, 5) for each in values)


def drilled(folder, kafka, engine, run_bytes):
    """Findings, with runs of so many bytes."""
    with closing(RowRuns(folder, run_bytes)) as one, closing(RowRuns(folder, run_bytes)) as other:
        for runs, values in ((one, kafka), (other, engine)):
            for each in values:
                runs.add(rows(each))
            runs.finish()
        return list(found_in(3, (one, other), run_bytes))


def test_one_missing_one_doubled_and_one_altered_are_found_among_many(tmp_path):
    chance = random.Random(5)
    ids = [chance.randrange(ID_END) for _ in range(20_000)]
    kafka = [(shown, shown ^ 1, at) for at, shown in enumerate(ids)]
    engine = [(shown, content, at + 7) for shown, content, at in kafka if at != 100]
    engine.append((ids[200], ids[200] ^ 1, 90_000))
    engine[300] = (engine[300][0], 77, engine[300][2])
    chance.shuffle(engine)
    found = {each.kind: each for each in drilled(tmp_path, kafka, engine, 8_000)}
    missing, doubled = found[DiscrepancyKind.MISSING_IN_ENGINE], found[DiscrepancyKind.DOUBLED_IN_ENGINE]
    altered = found[DiscrepancyKind.ALTERED]
    assert len(found) == 3
    assert (missing.id_hash, missing.kafka_offsets, missing.engine_offsets, missing.queue) == (ids[100], (100,), (), 3)
    assert (doubled.id_hash, doubled.kafka_offsets, doubled.engine_offsets) == (ids[200], (200,), (207, 90_000))
    assert (altered.kafka_offsets, altered.engine_offsets) == ((301,), (308,))
    assert list(tmp_path.iterdir()) == []


few = st.lists(
    st.tuples(st.integers(0, 3) | st.sampled_from((ID_END - 1, 1 << 63)), st.integers(0, 1), st.integers(0, 9))
)


@given(few, few, st.sampled_from((64, 200, 4096)))
def test_memory_changes_nothing_in_which_ids_are_found(tmp_path_factory, kafka, engine, run_bytes):
    whole = list(findings(3, differing(ordered(rows(*kafka)), ordered(rows(*engine)))))
    found = drilled(tmp_path_factory.getbasetemp(), kafka, engine, run_bytes)
    seen = {each.id_hash: (each.kafka_count, each.engine_count) for each in found}
    wanted = {each.id_hash: (each.kafka_count, each.engine_count) for each in whole}
    xors_hide = {shown for shown in wanted if shown not in seen}
    assert {shown: count for shown, count in wanted.items() if shown not in xors_hide} == seen
    assert all(wanted[shown][0] == wanted[shown][1] > run_bytes // 64 for shown in xors_hide)


def test_an_id_with_more_copies_than_fit_into_memory_is_found_by_its_counts(tmp_path):
    kafka, engine = [(9, 1, at) for at in range(100)], [(9, 1, at) for at in range(101)]
    (found,) = drilled(tmp_path, kafka, engine, 320)
    assert (found.kind, found.kafka_count, found.engine_count) == (DiscrepancyKind.DOUBLED_IN_ENGINE, 100, 101)
    assert found.engine_offsets == tuple(range(20))
    assert drilled(tmp_path, kafka, kafka, 320) == []


def kinds(kafka, engine):
    return [each.kind for each in findings(0, differing(ordered(rows(*kafka)), ordered(rows(*engine))))]


def test_each_kind_of_difference_has_its_name():
    assert kinds([(1, 1, 0)], [(1, 1, 9)]) == []
    assert kinds([(1, 1, 0)], []) == [DiscrepancyKind.MISSING_IN_ENGINE]
    assert kinds([], [(1, 1, 0)]) == [DiscrepancyKind.MISSING_IN_KAFKA]
    assert kinds([(1, 1, 0), (1, 1, 1)], [(1, 1, 0)]) == [DiscrepancyKind.DOUBLED_IN_KAFKA]
    assert kinds([(1, 1, 0)], [(1, 1, 0), (1, 1, 1)]) == [DiscrepancyKind.DOUBLED_IN_ENGINE]
    assert kinds([(1, 1, 0)], [(1, 2, 0)]) == [DiscrepancyKind.ALTERED]


def test_an_altered_message_that_was_written_again_is_no_divergence():
    repaired, other = (1, 1, 9 | REPAIRED), (1, 2, 0)
    assert kinds([(1, 1, 0)], [other, repaired]) == [DiscrepancyKind.SUPERSEDED]
    assert kinds([other, repaired], [(1, 1, 0)]) == [DiscrepancyKind.SUPERSEDED]
    assert kinds([(1, 1, 0)], [other, (1, 3, 9 | REPAIRED)]) == [DiscrepancyKind.ALTERED]
    assert kinds([(1, 1, 0)], [other, (1, 1, 9)]) == [DiscrepancyKind.ALTERED], "nobody has repaired it"


def window(*values):
    return bytearray(WINDOW.pack(*values))


def test_minutes_differ_by_any_sum_and_also_where_one_side_has_none():
    one = window(2, 10, 3, 4, 0, 9)
    assert differing_minutes({1: one}, {1: window(2, 10, 3, 4, 50, 60)}) == set()
    assert differing_minutes({1: one, 2: one}, {1: one}) == {2}
    for at in range(4):
        values = [2, 10, 3, 4, 0, 9]
        values[at] += 1
        assert differing_minutes({1: one}, {1: window(*values)}) == {1}


def test_ranges_that_lie_close_together_are_read_as_one():
    assert merged([ReadRange(50, 60), ReadRange(0, 10), ReadRange(12, 20)], 5) == [ReadRange(0, 20), ReadRange(50, 60)]
    assert merged([ReadRange(0, 100), ReadRange(5, 6)], 0) == [ReadRange(0, 100)]
