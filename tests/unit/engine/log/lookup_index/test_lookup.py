"""Messages looked up by id and by key: through lookup files, or by reading where there are none, and the same either way."""

import errno
import itertools
import logging
import struct
from collections.abc import Iterator

import pytest
from forms import forms, load
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from machine import NOW, Machine

from engine.env.simulated import PowerCut, SimulatedEnv
from engine.log.read.retentions import Retention

TIME_MAX = 1 << 62
SUFFIXES = {"id": ".mid", "key": ".key"}


def text(field: int, value: bytes | None) -> bytes:
    return b"" if value is None else struct.pack(">bhi", 11, field, len(value)) + value


def message(shown: bytes | None = None, key: bytes | None = None, body: bytes = b"") -> bytes:
    """Thrift binary of a message."""
    return text(2, body) + text(3, key) + text(6, shown) + b"\0"


def record(m: Machine, shown: bytes | None = None, key: bytes | None = None, body: bytes = b"", id16: bytes = b""):
    return m.form.format.pack_record(message(shown, key, body), id16)


def append(m: Machine, topic_id: int, queue: int, *records: bytes, now_ms: int = NOW) -> int:
    """One batch; its base offset."""
    ((code, offset),) = m.log.append(m.form.format.pack_batch(0, topic_id, queue, records), 1, now_ms)
    assert code == 0
    return offset


def make(m: Machine) -> None:
    """Let the maker work until it has nothing to do."""
    for pause_s in m.log.look_up.maker.steps():
        if pause_s in (m.form.maker.IDLE_S, m.form.maker.AFTER_FAULT_S):
            return


def pages(m: Machine, family: str, name: bytes, topic_id: int, from_ms: int, to_ms: int, limit: int) -> Iterator:
    """Each slice of a search until all has been looked at."""
    search_of, cursor = m.form.search, m.form.search.LookupCursor(0, 0)
    while cursor is not None:
        wanted = search_of.LookupQuery(
            m.form.lookup_file.FAMILIES[family], topic_id, name, from_ms, to_ms, limit, bytes_max=1 << 20
        )
        search = m.log.look_up.search(wanted, cursor)
        search.run()
        assert search.error == "" and len(search.found) <= limit
        cursor = search.cursor
        yield search


def look_up(m: Machine, family: str, name: bytes, topic_id: int = 1, from_ms=0, to_ms=TIME_MAX, limit=1000):
    """[(queue, offset)] of all that is found."""
    found = [each for page in pages(m, family, name, topic_id, from_ms, to_ms, limit) for each in page.found]
    return [(each.queue, each.offset) for each in found]


def read_bytes(m: Machine, family: str, name: bytes) -> int:
    """How many bytes of segments had to be read for it."""
    return sum(page.read_bytes for page in pages(m, family, name, 1, 0, TIME_MAX, 1000))


def fill(m: Machine, count: int = 120) -> None:
    """Some segments: ids that count up, ten keys, four queues."""
    for number in range(count):
        one = record(m, b"id-%d" % number, b"key-%d" % (number % 10), bytes(200))
        append(m, 1, number % 4, one, now_ms=NOW + number)


def place(number: int) -> tuple[int, int]:
    """Where `fill` has put its message."""
    return number % 4, number // 4


def all_is_found(m: Machine, count: int = 120) -> None:
    """What `fill` has stored, whichever way."""
    for number in range(0, count, 7):
        assert look_up(m, "id", b"id-%d" % number) == [place(number)]
    for key in range(10):
        assert look_up(m, "key", b"key-%d" % key) == [place(number) for number in range(key, count, 10)]
    assert look_up(m, "id", b"id-x") == look_up(m, "key", b"id-1") == look_up(m, "id", b"id-1", topic_id=2) == []


def with_partials(m: Machine, partial_bytes: int = 1000, merged: int = 3) -> None:
    """Have partial indexes made per so many bytes of the active segment, and so many merged."""
    m.log.look_up.maker.partials.partial_bytes, m.log.look_up.maker.partials.partials_merged = partial_bytes, merged


def files(m: Machine, suffix: str) -> list[str]:
    return [f"{m.directory}/log/{name}" for name in m.env.list(f"{m.directory}/log") if name.endswith(suffix)]


def test_messages_are_found_by_reading_and_then_by_files_of_every_sealed_segment(any_machine):
    m = any_machine
    fill(m)
    all_is_found(m)
    m.log.checkpoint()  # behind what seals
    make(m)
    assert len(files(m, ".mid")) == len(files(m, ".key")) == len(files(m, ".idx")) > 2
    all_is_found(m)
    active = m.log.end_position - m.log.appender.segment_base
    assert read_bytes(m, "id", b"id-0") <= active
    m.reopen()
    assert read_bytes(m, "key", b"key-1") <= active
    all_is_found(m)


def test_an_assigned_id_is_found_as_it_is_shown_and_hides_one_in_the_message(machine):
    m, id16 = machine, bytes(range(16))
    append(m, 1, 3, record(m), record(m, b"inner", b"k", id16=id16))
    fill(m)
    for _ in range(2):
        assert look_up(m, "id", id16.hex().encode()) == [(3, 1)]
        assert look_up(m, "id", b"inner") == look_up(m, "id", id16) == []
        assert look_up(m, "key", b"k") == [(3, 1)]
        make(m)


def test_a_search_is_bounded_by_times_and_goes_on_within_a_batch(machine):
    m = machine
    append(m, 1, 0, *[record(m, key=b"k", body=b"%d" % number) for number in range(30)], now_ms=NOW + 5)
    fill(m)
    append(m, 1, 1, record(m, key=b"k"), now_ms=NOW + 500)
    for _ in range(2):
        expected = [(0, offset) for offset in range(30)]
        for limit in (1, 7, 30, 31):
            assert look_up(m, "key", b"k", limit=limit)[:30] == expected
        assert look_up(m, "key", b"k", to_ms=NOW + 5) == expected
        assert look_up(m, "key", b"k", from_ms=NOW + 6) == look_up(m, "key", b"k", from_ms=NOW + 500) == [(1, 30)]
        assert look_up(m, "key", b"k", from_ms=NOW + 501) == look_up(m, "key", b"k", to_ms=NOW + 4) == []
        make(m)


def test_a_file_is_made_in_several_passes_when_it_has_many_names_and_few_of_them_equal(machine):
    m = machine
    m.log.look_up.maker.entries_max = 8
    fill(m)
    make(m)
    all_is_found(m)


def test_one_key_that_fills_many_blocks_is_found_as_a_whole_and_beside_others(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=1 << 17)
    for number in range(1800):
        append(m, 1, 0, record(m, key=b"rare-%d" % (number // 100) if number % 100 == 50 else b"hot"))
    make(m)
    assert look_up(m, "key", b"hot", limit=100) == [(0, number) for number in range(1800) if number % 100 != 50]
    assert [look_up(m, "key", b"rare-%d" % number) for number in range(18)] == [
        [(0, 50 + 100 * number)] for number in range(18)
    ]
    m.close()


def test_a_batch_larger_than_a_step_and_those_around_it_are_found(form):
    m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4 << 20)
    for number in range(9):
        large = record(m, b"large-%d" % number, b"k", bytes(1_200_000))
        append(m, 1, 0, record(m, b"before-%d" % number, b"k"), large, record(m, b"after-%d" % number, b"k"))
        append(m, 1, 0, record(m, b"small-%d" % number))
    for _ in range(2):
        for kind, at in (("before", 0), ("large", 1), ("after", 2), ("small", 3)):
            assert look_up(m, "id", b"%s-7" % kind.encode()) == [(0, 7 * 4 + at)]
        assert len(look_up(m, "key", b"k")) == 27
        make(m)
    m.close()


def test_a_slice_that_has_read_enough_goes_on_in_the_next(machine, monkeypatch):
    m = machine
    monkeypatch.setattr(m.form.search, "SLICE_BYTES", 5000)
    fill(m)
    all_is_found(m)
    slices = [page.read_bytes for page in pages(m, "id", b"id-3", 1, 0, TIME_MAX, 1000)]
    assert len(slices) > 3 and sum(slices) <= m.log.end_position


def test_the_maker_keeps_its_pace_and_rests_longer_than_it_works(machine):
    m = machine
    fill(m)
    bases = {int(path[-24:-4]) for path in files(m, ".idx")}
    form, family = m.form.maker, m.form.lookup_file.ID

    def pauses(clock) -> list[float]:
        for path in files(m, ".mid"):
            del m.env.files[path]
        maker = form.LookupFileMaker(m.env, "/data/log", m.log.log_id, lambda: bases, [family], 1000, clock=clock)
        return list(itertools.takewhile(lambda pause_s: pause_s != form.IDLE_S, maker.steps()))

    paced = pauses(lambda: 0.0)
    read = sum(int(m.form.index_file.read_index_header(m.env, "/data/log", base).end_at) - 64 for base in bases)
    written = 2 * sum(len(m.env.files[path].seen) - 4096 for path in files(m, ".mid"))  # a run, and the file of it
    assert len(paced) == 3 * len(bases) and sum(paced) < (read + written) / 1000
    assert max(paced) <= m.config.segment_bytes / 1000
    ticks = itertools.count(0, 10)
    assert min(pauses(lambda: float(next(ticks)))) >= form.REST * 10


def test_both_forms_make_the_same_bytes():
    made = []
    for form in forms():
        m = Machine(load(form), SimulatedEnv(), "/data")
        m.log.look_up.maker.entries_max = 16
        fill(m, 400)
        make(m)
        made.append([bytes(m.env.files[path].seen) for path in (*files(m, ".mid"), *files(m, ".key"))])
        m.close()
    assert all(each == made[0] for each in made) and len(made[0]) > 10


@pytest.mark.parametrize("family", ["id", "key"])
def test_a_damaged_byte_anywhere_in_a_file_is_found_and_the_file_made_again(form, family, caplog):
    caplog.set_level(logging.CRITICAL)
    m = Machine(form, SimulatedEnv(), "/data")
    fill(m)
    make(m)
    path = files(m, SUFFIXES[family])[0]
    whole = bytes(m.env.files[path].seen)
    numbers = [number for number in range(10) if place(number)[1] < 3]
    for at in range(0, len(whole), 61):
        m.damage(path, at, bytes([whole[at] ^ 0x41]))
        damage = m.log.look_up.maker.counts.damage
        for number in numbers:
            name = b"%s-%d" % (family.encode(), number)
            assert place(number) in look_up(m, family, name), at
        assert m.log.look_up.maker.counts.damage == damage + 1, at
        make(m)
        assert bytes(m.env.files[path].seen) == whole
    m.close()


@pytest.mark.parametrize("cut", [0, 100, 4096, 5000, -1])
def test_a_cut_or_missing_file_is_not_trusted_and_made_again(machine, cut):
    m = machine
    fill(m)
    make(m)
    path = files(m, ".mid")[0]
    whole = bytes(m.env.files[path].seen)
    if cut >= 0:
        del m.env.files[path].seen[cut:]
    else:
        del m.env.files[path]
    all_is_found(m)
    assert m.log.look_up.maker.counts.damage == 1
    make(m)
    assert bytes(m.env.files[path].seen) == whole
    all_is_found(m)


def test_a_file_of_another_segment_or_family_is_not_trusted(machine):
    m = machine
    fill(m)
    make(m)
    first, second = files(m, ".mid")[:2]
    m.env.files[first].seen[:] = m.env.files[second].seen
    m.env.files[files(m, ".key")[1]].seen[:] = m.env.files[second].seen
    all_is_found(m)
    assert m.log.look_up.maker.counts.damage == 2


def test_a_family_that_is_switched_off_loses_its_files_and_gets_them_back(machine):
    m = machine
    fill(m)
    make(m)
    for families in (("key",), (), ("id", "key")):
        m.close()
        m.config = load(m.form.name).log.LogConfig(segment_bytes=m.config.segment_bytes, look_up=families)
        m.open()
        make(m)
        for family, suffix in SUFFIXES.items():
            assert bool(files(m, suffix)) == (family in families)
        all_is_found(m)


def test_a_kill_or_a_power_cut_at_any_step_of_making_files_leaves_none_that_is_wrong(form):
    for cut in itertools.count(1):
        m = Machine(form, SimulatedEnv(), "/data")
        fill(m, 80)
        m.log.checkpoint()
        m.env.power_cut_at = m.env.operations + cut
        try:
            make(m)
            break
        except PowerCut:
            m.kill() if cut % 2 else m.crash()
        assert not files(m, ".tmp")
        all_is_found(m, 80)
        make(m)
        all_is_found(m, 80)
        assert m.log.look_up.maker.counts.damage == 0
    assert cut > 20


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "read"])
def test_a_disk_that_refuses_a_file_is_tried_again_and_nothing_half_made_is_left(machine, operation, caplog):
    m = machine
    fill(m)
    m.env.fail(operation, errno.ENOSPC)
    steps = m.log.look_up.maker.steps()
    for pause_s in steps:
        if pause_s == m.form.maker.AFTER_FAULT_S:
            break
    assert not files(m, ".mid") and not files(m, ".mid.tmp") and not files(m, ".key.tmp")
    assert "retrying" in caplog.text
    m.env.heal()
    for pause_s in steps:
        if pause_s == m.form.maker.IDLE_S:
            break
    assert len(files(m, ".mid")) == len(files(m, ".idx")) and not files(m, ".tmp")


def test_a_full_disk_gets_no_files(machine):
    m = machine
    fill(m)
    m.env.disk_used, m.env.disk_free = 91, 9
    m.log.retention.disk.check()
    make(m)
    assert not files(m, ".mid")
    all_is_found(m)


def test_damaged_messages_are_left_out_and_hide_no_others(machine):
    m = machine
    fill(m)
    segment = files(m, ".seg")[0]
    at = bytes(m.env.files[segment].seen).index(b"id-7\0")
    for _ in range(2):
        m.damage(segment, at - 100, b"\xff")
        assert [look_up(m, "id", b"id-%d" % number) for number in (6, 7, 8)] == [[place(6)], [], [place(8)]]
        assert look_up(m, "key", b"key-7") == [place(number) for number in range(17, 120, 10)]
        m.damage(segment, at - 100, b"\0")
        make(m)


def test_files_go_with_their_segment_and_what_is_below_the_floor_is_known_by_its_offset(form):
    m = Machine(form, SimulatedEnv(), "/data", retention_ms=1000, delete_interval_ms=10)
    fill(m)
    m.log.checkpoint()
    make(m)
    before = len(files(m, ".mid"))
    m.env.clock_ms = NOW + 1000 + 60
    for _ in range(400):
        m.env.clock_ms += m.log.retention.step() // 100
    gone = before - len(files(m, ".mid"))
    assert gone > 0 and len(files(m, ".mid")) == len(files(m, ".key")) == len(files(m, ".idx"))
    make(m)
    first = min(number for number in range(120) if look_up(m, "id", b"id-%d" % number))
    assert first > 0
    for number in range(120):
        assert look_up(m, "id", b"id-%d" % number) == ([place(number)] if number >= first else [])
    assert m.log.look_up.maker.counts.damage == 0
    m.close()


def test_a_segment_that_goes_while_its_file_is_made_leaves_no_file(machine):
    m = machine
    fill(m)
    steps = m.log.look_up.maker.steps()
    next(steps)
    newest = max(m.log.look_up.maker._sealed())
    del m.env.files[f"/data/log/{newest:020d}.seg"]
    for pause_s in steps:
        if pause_s == m.form.maker.IDLE_S:
            break
    assert not [path for path in (*files(m, ".mid"), *files(m, ".key")) if f"{newest:020d}" in path]


class LookUpModel(RuleBasedStateMachine):
    """`stored` is every message in the order of the log: (topic, queue, offset, time, id, key)."""

    form = "twin"

    @initialize(
        segment=st.sampled_from([4096, 8192]), entries_max=st.sampled_from([4, 1 << 20]),
        partial_bytes=st.sampled_from([300, 1000, 1 << 20]),
    )  # fmt: skip
    def begin(self, segment: int, entries_max: int, partial_bytes: int) -> None:
        self.m = Machine(load(self.form), SimulatedEnv(), "/data", segment_bytes=segment)
        self.entries_max, self.partial_bytes, self.now_ms, self.ids = entries_max, partial_bytes, NOW, itertools.count()
        self.stored: list[tuple] = []

    @rule(
        topic_id=st.integers(1, 2),
        named=st.lists(
            st.tuples(st.sampled_from(["assigned", "own", "none"]), st.integers(0, 8), st.integers(0, 4), st.integers(0, 300)),
            min_size=1,
            max_size=6,
        ),
        later_ms=st.integers(0, 3),
    )  # fmt: skip
    def append(self, topic_id: int, named, later_ms: int) -> None:
        self.now_ms += later_ms
        records, rows = [], []
        for kind, shown, key, size in named:
            id16 = next(self.ids).to_bytes(16, "big") if kind == "assigned" else b""
            own = b"i%d" % shown if kind == "own" else None
            key_bytes = b"k%d" % key if key else None
            records.append(record(self.m, own, key_bytes, bytes(size), id16))
            rows.append((id16.hex().encode() if id16 else own, key_bytes))
        queue = len(records) % (4 if topic_id == 1 else 1)
        offset = append(self.m, topic_id, queue, *records, now_ms=self.now_ms)
        self.stored += [(topic_id, queue, offset + at, self.now_ms, *row) for at, row in enumerate(rows)]

    @rule()
    def make_files(self) -> None:
        self.m.log.look_up.maker.entries_max = self.entries_max
        with_partials(self.m, self.partial_bytes, 3)
        make(self.m)

    @rule(stop=st.booleans())
    def start_again(self, stop: bool) -> None:
        self.m.reopen() if stop else self.m.kill()

    @rule(
        suffix=st.sampled_from([".mid", ".key", ".tmp"]),
        which=st.integers(0, 9),
        at=st.integers(0, 4095),
        lose=st.booleans(),
    )
    def damage(self, suffix: str, which: int, at: int, lose: bool) -> None:
        there = files(self.m, suffix)
        if there and lose:
            del self.m.env.files[there[which % len(there)]]
        elif there:
            path = there[which % len(there)]
            self.m.damage(path, at, bytes([self.m.env.files[path].seen[at] ^ 0x80]))

    @rule(
        topic_id=st.integers(1, 2), family=st.sampled_from(["id", "key"]), which=st.integers(0, 60),
        from_ms=st.integers(0, 40), length_ms=st.integers(0, 100), limit=st.sampled_from([1, 3, 1000]),
    )  # fmt: skip
    def look(self, topic_id: int, family: str, which: int, from_ms: int, length_ms: int, limit: int) -> None:
        column = 4 if family == "id" else 5
        names = sorted({row[column] for row in self.stored if row[column]}) or [b"none"]
        name, low, high = names[which % len(names)], NOW + from_ms, NOW + from_ms + length_ms
        expected = [
            row[1:3] for row in self.stored if row[0] == topic_id and row[column] == name and low <= row[3] <= high
        ]
        assert look_up(self.m, family, name, topic_id, low, high, limit) == expected


@pytest.mark.parametrize("form", forms())
def test_look_up_agrees_with_a_dictionary(form, caplog):
    caplog.set_level(logging.CRITICAL)
    model = type(f"Model{form}", (LookUpModel,), {"form": form})
    bounds = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(model, settings=bounds)


def test_floors_of_a_topic_do_not_change_what_the_log_holds(machine):
    """What is below a floor is left out where it is answered, by its offset."""
    m = machine
    fill(m)

    class Short:
        generation, is_known = 1, True

        def of(self, topic: str) -> Retention:
            return Retention(age_ms=50)

    m.log.start_offsets.policy = Short()
    m.env.clock_ms = NOW + 100
    assert m.log.bounds(1, 0)[0] > 0
    assert look_up(m, "id", b"id-0") == [(0, 0)]
