"""Partial indexes of the active segment: what they cover is not read again, and damaged ones are not trusted."""

import errno
import itertools
import logging
import struct

import pytest
from forms import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import NOW, Machine
from test_lookup import all_is_found, append, files, fill, look_up, make, place, read_bytes, record, with_partials

from engine.env.simulated import PowerCut, SimulatedEnv

SEGMENT = 1 << 17
RUN = 2000
ENTRY = struct.Struct("<QI")


@pytest.fixture
def filled(form):
    """120 messages in the open segment, with runs of most of them."""
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=SEGMENT)
    with_partials(m, RUN, 4)
    fill_with_partials(m)
    yield m
    m.close()


def fill_with_partials(m: Machine, start: int = 0, end: int = 120) -> None:
    """As `fill`, with the maker at work meanwhile."""
    for number in range(start, end):
        one = record(m, b"id-%d" % number, b"key-%d" % (number % 10), bytes(200))
        append(m, 1, number % 4, one, now_ms=NOW + number)
        make(m)


def partials_of(m: Machine, family: str = "id"):
    base = m.log.appender.segment_base
    return m.log.look_up.maker.partials.of(base, m.form.lookup_file.FAMILIES[family])


def path_of(m: Machine, run) -> str:
    return m.log.look_up.maker.partials.title(m.log.appender.segment_base, m.form.lookup_file.ID, run).path


def test_a_look_up_reads_what_came_since_the_last_run_and_nothing_else(filled):
    m = filled
    assert m.log.end_position > 10 * RUN and len(partials_of(m)) > 3
    for family, name in (("id", b"id-3"), ("key", b"key-3")):
        assert 0 < read_bytes(m, family, name) < RUN
    all_is_found(m)
    append(m, 1, 0, record(m, b"after", b"key-3"))
    assert look_up(m, "id", b"after") == [(0, 30)] and len(look_up(m, "key", b"key-3")) == 13
    assert read_bytes(m, "id", b"after") < 2 * RUN


def test_runs_cover_the_segment_without_a_gap_and_many_small_ones_become_one(filled):
    runs = partials_of(filled)
    assert [run.from_at for run in runs] == [64, *(run.end_at for run in runs[:-1])]
    assert {run.pieces for run in runs} == {1, 4} and sum(run.pieces == 1 for run in runs) < 4
    assert len(files(filled, ".tmp")) == 2 * len(runs)


def test_no_run_is_made_before_enough_has_come(filled):
    m = filled
    before = m.log.look_up.maker.counts.runs
    append(m, 1, 0, record(m, b"one more"))
    make(m)
    assert m.log.look_up.maker.counts.runs == before


def test_the_bytes_of_a_stretch_are_read_once_for_ids_and_keys(filled):
    m = filled
    covered = partials_of(m)[-1].end_at
    assert [run[:3] for run in partials_of(m, "key")] == [run[:3] for run in partials_of(m)]
    assert m.log.look_up.maker.counts.read_bytes == covered - 64


def test_a_family_that_was_refused_its_run_catches_up_and_goes_on_with_the_other(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=SEGMENT)
    with_partials(m, RUN, 1000)
    maker, clock = m.log.look_up.maker, [0.0]
    maker._clock = lambda: clock[0]

    def refuse_keys(operation: str, path: str, at: int, size: int) -> None:
        if operation == "create" and ".key." in path:
            raise OSError(errno.ENOSPC, "simulated", path)

    m.env.on_call = refuse_keys
    fill_with_partials(m, 0, 20)
    m.env.on_call = None
    assert partials_of(m) and not partials_of(m, "key")
    clock[0] += m.form.maker.AFTER_FAULT_S
    fill_with_partials(m, 20, 80)
    assert [run[:3] for run in partials_of(m, "key")] == [run[:3] for run in partials_of(m)]
    all_is_found(m, 80)
    m.close()


def test_a_search_is_bounded_by_times_and_limits_across_partial_indexes(filled):
    for limit in (1, 5, 12):
        assert look_up(filled, "key", b"key-4", limit=limit) == [place(number) for number in range(4, 120, 10)]
    assert look_up(filled, "key", b"key-4", from_ms=NOW + 30, to_ms=NOW + 54) == [place(34), place(44), place(54)]


def test_the_file_of_a_sealed_segment_is_the_same_with_and_without_partial_indexes(form):
    made = []
    for partial_bytes in (1 << 20, 700, 3000):
        m = Machine(form, SimulatedEnv(), "/data")
        with_partials(m, partial_bytes)
        for _ in range(3):
            fill(m, 60)
            make(m)
        made.append([bytes(m.env.files[path].seen) for suffix in (".mid", ".key") for path in files(m, suffix)])
        open_one = f"{m.log.appender.segment_base:020d}"
        assert all(open_one in path for path in files(m, ".tmp"))
        m.close()
    assert len(made[0]) > 4 and made[1] == made[0] and made[2] == made[0]


def test_the_open_segment_is_not_kept_waiting_by_the_file_of_a_sealed_one(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=1 << 15)
    with_partials(m, RUN)
    fill(m, 200)
    steps = m.log.look_up.maker.steps()
    next(steps)
    at, open_at = 0, m.log.appender.segment_base
    while m.log.appender.segment_base == open_at and not look_up(m, "id", b"id-%d" % (1000 + at)):
        append(m, 1, 0, record(m, b"id-%d" % (1000 + at), body=bytes(300)))
        at += 1
    for number in range(30):
        append(m, 1, 0, record(m, b"more-%d" % number, body=bytes(300)))
    while m.log.look_up.maker.partials.due(m.form.lookup_file.ID):
        next(steps)
    assert m.log.look_up.maker.waiting
    m.close()


def test_a_damaged_byte_anywhere_in_a_run_is_found_and_the_run_made_again(filled, caplog):
    caplog.set_level(logging.CRITICAL)
    m = filled
    for at in range(0, 4500, 61):
        path = next(path for path in files(m, ".tmp") if ".mid." in path)
        m.damage(path, at, bytes([m.env.files[path].seen[at] ^ 0x41]))
        damage = m.log.look_up.maker.counts.damage
        for number in range(0, 120, 9):
            assert look_up(m, "id", b"id-%d" % number) == [place(number)], at
        make(m)
        assert m.log.look_up.maker.counts.damage == damage + 1, at
        assert read_bytes(m, "id", b"id-3") < RUN


@pytest.mark.parametrize("how", ["missing", "cut", "of another stretch", "of another family"])
def test_a_run_that_is_not_the_right_one_is_not_trusted(filled, how):
    m = filled
    first, second = [path for path in files(m, ".tmp") if ".mid." in path][:2]
    if how == "missing":
        del m.env.files[first]
    elif how == "cut":
        del m.env.files[first].seen[5000:]
    else:
        other = second if how == "of another stretch" else first.replace(".mid.", ".key.")
        m.env.files[first].seen[:] = m.env.files[other].seen
    all_is_found(m)
    make(m)
    assert m.log.look_up.maker.counts.damage == 1
    assert read_bytes(m, "id", b"id-3") < RUN
    all_is_found(m)


def test_a_run_that_is_damaged_when_it_is_merged_is_made_again(filled):
    m = filled
    m.damage(path_of(m, partials_of(m)[-1]), 4100, b"\xff\xff")
    m.log.look_up.maker.partials.partials_merged = 2
    fill_with_partials(m, 120, 140)
    assert m.log.look_up.maker.counts.damage == 1
    all_is_found(m, 140)
    assert read_bytes(m, "id", b"id-3") < RUN


def test_a_search_that_finds_its_run_merged_goes_on_in_the_merged_one(filled, monkeypatch):
    m, runs = filled, filled.log.look_up.maker.partials
    title, last = runs.title, partials_of(m)[-1]
    path = path_of(m, last)

    def late(base, family, run):
        found = title(base, family, run)
        if found.path == path:
            monkeypatch.setattr(runs, "title", title)
            runs.partials_merged = 2
            fill_with_partials(m, 120, 140)
            assert not m.env.exists(path)
        return found

    monkeypatch.setattr(runs, "title", late)
    number = last.newest_ms - NOW
    assert look_up(m, "id", b"id-%d" % number) == [place(number)] and runs.title == title
    assert m.log.look_up.maker.counts.damage == 0


def test_a_start_removes_the_runs_of_a_killed_engine_and_a_stop_its_own(filled):
    m = filled
    assert files(m, ".tmp")
    m.kill()
    assert not files(m, ".tmp")
    all_is_found(m)
    with_partials(m, RUN)
    make(m)
    assert files(m, ".tmp")
    m.close()
    assert not files(m, ".tmp")
    m.open()
    all_is_found(m)


def test_a_kill_or_a_power_cut_at_any_step_of_making_runs_leaves_nothing_that_is_wrong(form):
    for cut in itertools.count(1):
        m = Machine(form, SimulatedEnv(), "/data", segment_bytes=1 << 15)
        with_partials(m, RUN)
        assert m.durable()
        m.env.power_cut_at = m.env.operations + cut * 3
        try:
            for _ in range(3):
                fill(m, 40)
                make(m)
            break
        except PowerCut:
            m.kill() if cut % 2 else m.crash()
        assert not files(m, ".tmp")
        with_partials(m, RUN)
        for _ in range(2):
            found = {number: look_up(m, "id", b"id-%d" % number) for number in range(40)}
            stored = sum(map(len, found.values()))
            assert stored == sum(m.log.bounds(1, queue)[1] for queue in range(4))
            make(m)
    assert cut > 10


@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_disk_that_refuses_a_run_is_tried_again_later_and_nothing_half_made_is_left(form, operation, caplog):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=SEGMENT)
    maker, clock = m.log.look_up.maker, [0.0]
    maker._clock = lambda: clock[0]
    with_partials(m, RUN)
    fill(m)
    m.env.fail(operation, errno.ENOSPC)
    make(m)
    assert not files(m, ".tmp") and "retrying" in caplog.text
    all_is_found(m)
    m.env.heal()
    make(m)
    assert not files(m, ".tmp")
    clock[0] += m.form.maker.AFTER_FAULT_S
    make(m)
    assert files(m, ".tmp") and read_bytes(m, "id", b"id-1") < RUN
    m.close()


def test_runs_of_a_segment_that_goes_before_its_file_is_made_go_with_it(form):
    m = Machine(form, SimulatedEnv(), "/data", retention_ms=1000, delete_interval_ms=10)
    with_partials(m, RUN)
    for _ in range(4):
        fill(m, 30)
        m.log.look_up.maker._has_room = lambda: True
        for _ in m.log.look_up.maker.partials.make(m.form.lookup_file.FAMILIES.values(), 1 << 20):
            pass
    m.log.look_up.maker._has_room = lambda: False
    m.log.checkpoint()
    make(m)
    before = files(m, ".tmp")
    m.env.clock_ms = NOW + 5000
    for _ in range(400):
        m.env.clock_ms += m.log.retention.step()
    make(m)
    left = files(m, ".tmp")
    segments = {path[:-4] for path in files(m, ".seg")}
    assert len(left) < len(before) and all(path.partition(".")[0] in segments for path in left)
    m.close()


def test_large_batches_and_damage_do_not_stop_partial_indexes(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4 << 20)
    with_partials(m, 1000)
    for number in range(3):
        append(m, 1, 0, record(m, b"before-%d" % number), record(m, b"large-%d" % number, body=bytes(1_100_000)))
        append(m, 1, 0, record(m, b"small-%d" % number))
        make(m)
    assert [look_up(m, "id", b"large-%d" % number) for number in range(3)] == [[(0, 1)], [(0, 4)], [(0, 7)]]
    assert look_up(m, "id", b"small-2") == [(0, 8)]
    m.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entries=st.lists(st.tuples(st.integers(0, 9) | st.integers(0, 1 << 64 - 1), st.integers(0, 99)), unique=True),
    files_=st.integers(1, 5), block=st.integers(1, 7), step=st.integers(1, 11),
)  # fmt: skip
def test_a_merger_gives_all_entries_of_all_files_in_order(form, entries, files_, block, step):
    sources = []
    for number in range(files_):
        own = sorted(entries[number::files_])
        sources.append(
            iter([b"".join(ENTRY.pack(*each) for each in own[at : at + block]) for at in range(0, len(own), block)])
        )
    merger, found = form.native.Merger(sources), []
    while count := merger.fill(step):
        data = merger.blocks(0, 1, b"seed", 1)
        held = list(ENTRY.iter_unpack(form.lookup_file.entries_of(data)))
        assert len(held) == count
        found += held
    assert found == sorted(entries)


@given(
    entries=st.lists(st.integers(0, 99), min_size=1, max_size=1000), first=st.integers(1, 1 << 32 - 1), data=st.data()
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_are_read_up_to_the_first_that_does_not_verify(form, entries, first, data):
    packed = sorted({ENTRY.pack(entry, at) for at, entry in enumerate(entries)})
    merger = form.native.Merger([iter([each]) for each in packed])
    assert merger.fill(len(packed)) == len(packed)
    blocks = merger.blocks(0, 9, b"seed", first)
    whole, number = form.native.unpacked_blocks(blocks, b"seed", first)
    assert sorted(whole[at : at + 12] for at in range(0, len(whole), 12)) == packed and number == len(blocks) // 4096
    bad = data.draw(st.integers(0, len(blocks) - 1))
    damaged = blocks[:bad] + bytes([blocks[bad] ^ 1]) + blocks[bad + 1 :]
    assert form.native.unpacked_blocks(damaged, b"seed", first) == (whole[: bad // 4096 * 4080], bad // 4096)
    assert form.native.unpacked_blocks(blocks[:bad], b"seed", first)[1] == bad // 4096
    for other in (
        form.native.unpacked_blocks(blocks, b"sed", first),
        form.native.unpacked_blocks(blocks, b"seed", first - 1),
    ):
        assert other == (b"", 0)


@pytest.mark.parametrize("times", [1, 300])
def test_hashes_that_differ_in_their_lowest_bits_only_are_in_order(times):
    """Native only: its sort distributes entries by the upper 33 bits, and moves the few that are not in order then."""
    form = load("native")
    if not form.native.NATIVE:
        pytest.skip("no native parts here")
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=SEGMENT)

    def hashed(name: bytes) -> int:
        return form.native.term_hash(m.log.log_id, 1, name)

    seen: dict[int, bytes] = {}
    pairs = []
    for number in range(600_000):
        name = b"%d" % number
        other = seen.setdefault(hashed(name) >> 31, name)
        if other is not name:
            pairs.append(sorted((other, name), key=hashed, reverse=True))
    assert pairs, "none of 600,000 hashes is near another one"
    for _ in range(times):
        append(m, 1, 0, *(record(m, name) for name in pairs[0]))
    append(m, 1, 0, *(record(m, name) for pair in pairs for name in pair))
    m.log.checkpoint()
    with_partials(m, m.log.end_position - m.log.appender.segment_base - 64)
    make(m)
    (partial,) = partials_of(m)
    names = form.lookup_file.LookupFile(
        m.env, m.log.look_up.maker.partials.title(m.log.appender.segment_base, form.lookup_file.ID, partial)
    )
    assert names.summary.entries == 2 * times + 2 * len(pairs)
    for _ in names.check():
        pass
    names.close()
    m.close()
