"""What is there after a crash, with every kind of file damaged, missing or old."""

import errno
import logging
from random import Random

import pytest
from forms import forms, load
from machine import SEGMENT, Machine

from engine.env.real import RealEnv
from engine.env.simulated import PowerCut, ProcessEnded, SimulatedEnv
from engine.errors import BehindCheckpointError, CorruptionError, LockedError, VersionError

LAST = b"the last batch of the log, long enough to be torn in many places"


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Damage is logged as errors, thousands of times here."""
    caplog.set_level(logging.CRITICAL)


def fill(machine: Machine, batches: int = 300) -> dict[tuple[int, int], list[bytes]]:
    """Batches over several segments; returns what each queue holds."""
    held = {(1, 0): [], (1, 3): [], (2, 0): []}
    for i in range(batches):
        key = list(held)[i % 3]
        bodies = [b"%d/%d" % (i, part) * 5 for part in range(1 + i % 4)]
        machine.append(*key, *bodies)
        held[key] += bodies
        if i % 50 == 0:
            machine.log.put_progress([(b"group%d" % (i % 3), b"%d" % i), (b"both", b"%d" % i)])
    return held


def assert_holds(machine: Machine, held: dict[tuple[int, int], list[bytes]]) -> None:
    for key, bodies in held.items():
        assert machine.bodies(*key) == bodies
        assert machine.log.bounds(*key) == (0, len(bodies))
    assert [topic.name for topic in machine.log.topics()] == ["first", "second"]


@pytest.mark.parametrize("loss", ["nothing", "indexes", "state", "indexes and state"])
def test_the_log_alone_rebuilds_everything(machine, loss):
    held = fill(machine)
    progress = list(machine.log.progress())
    machine.close()
    if "indexes" in loss:
        for path in [path for path in machine.env.files if path.endswith(".idx")]:
            del machine.env.files[path]
    if "state" in loss:
        machine.env.stores.clear()
    machine.open()
    assert_holds(machine, held)
    assert list(machine.log.progress()) == progress
    assert machine.log.damage == []
    assert machine.append(1, 0, b"more") == len(held[1, 0])
    assert machine.log.create_topics([("third", 1)])[0].id == 3


def test_a_removed_state_folder_and_indexes_are_rebuilt_on_real_files(form, tmp_path):
    import shutil

    m = Machine(form, RealEnv(), str(tmp_path))
    held = fill(m)
    m.close()
    shutil.rmtree(tmp_path / "state")
    next(iter(sorted((tmp_path / "log").glob("*.idx")))).unlink()
    m.open()
    assert_holds(m, held)
    m.close()


def test_damaged_files_of_the_state_folder_are_set_aside_and_built_again(form, tmp_path):
    m = Machine(form, RealEnv(), str(tmp_path))
    held = fill(m)
    m.log.checkpoint()
    m.close()
    for path in [*(tmp_path / "state").glob("*.sst"), *(tmp_path / "state").glob("MANIFEST*")]:
        data = bytearray(path.read_bytes())
        for at in range(10, len(data), 50):
            data[at] ^= 0x10
        path.write_bytes(data)
    m.open()
    assert (tmp_path / "state.damaged").is_dir()
    assert_holds(m, held)
    m.close()


@pytest.mark.parametrize("first", forms())
@pytest.mark.parametrize("second", forms())
def test_each_form_reads_what_the_other_wrote(first, second, tmp_path):
    m = Machine(load(first), RealEnv(), str(tmp_path))
    held = fill(m)
    m.reopen(load(second))
    assert_holds(m, held)
    held[1, 0].append(b"from the second form")
    m.append(1, 0, b"from the second form")
    m.reopen(load(first))
    assert_holds(m, held)
    m.close()


def test_both_forms_write_the_same_bytes():
    contents = []
    for form in forms():
        m = Machine(load(form), SimulatedEnv(), "/data")
        fill(m)
        m.close()
        contents.append({path: bytes(content.seen) for path, content in m.env.files.items()})
        contents[-1]["state"] = repr(sorted(m.env.stores["/data/state"].items()))
    assert all(content == contents[0] for content in contents)


def test_a_clean_stop_and_a_killed_process_lose_nothing(any_machine):
    held = fill(any_machine)
    any_machine.reopen()
    assert_holds(any_machine, held)


@pytest.mark.parametrize("tail", ["torn", "zeros", "garbage"])
def test_a_bad_tail_is_cut_wherever_it_begins(form, tail):
    m = Machine(form, SimulatedEnv(), "/data")
    held = fill(m, 30)
    start = m.log.end_position - m.log.appender.segment_base
    m.append(1, 0, LAST)
    path = m.file()
    end = m.log.end_position - m.log.appender.segment_base
    whole = bytes(m.env.files[path].seen[:end])
    size = int.from_bytes(whole[start + 4 : start + 8], "little")
    for cut in range(start, start + size):
        if tail == "garbage":
            after = Random(cut).randbytes(min(1000, SEGMENT - cut))
        else:
            after = bytes(end - cut)
        m.damage(path, 0, whole[:cut] + after if tail != "torn" else whole[:cut])
        if tail == "torn":
            del m.env.files[path].seen[cut:]
            m.env.files[path].sync()
        m.kill()
        assert m.log.end_position == m.log.appender.segment_base + start, cut
        assert m.log.damage == []
        assert not any(m.env.files[path].seen[start:]), "stale bytes behind the end"
        assert len(m.env.files[path].seen) == SEGMENT
        assert m.append(1, 0, b"next") == len(held[1, 0])
        assert m.bodies(1, 0)[-1] == b"next"


def test_what_was_cut_never_comes_back(machine):
    machine.append(1, 0, b"kept")
    path, start = machine.file(), machine.log.end_position
    machine.append(1, 0, b"a" * 50)
    machine.append(1, 1, b"b" * 50)
    machine.damage(path, start + 60, b"\0\0\0")
    machine.damage(path, start + 8 + 104 + 60, b"\0\0\0")
    machine.kill()
    assert machine.log.bounds(1, 1) == (0, 0)
    machine.append(1, 0, b"a" * 50)
    machine.kill()
    assert machine.bodies(1, 0) == [b"kept", b"a" * 50]
    assert machine.log.bounds(1, 1) == (0, 0)


def test_a_flipped_bit_is_never_served(form):
    m = Machine(form, SimulatedEnv(), "/data")
    for body in (b"one", b"two", b"three"):
        m.append(1, 0, body)
    path = m.file()
    entries = m.log.appender.index.entries(1, 0)
    at, size = entries[1][1], entries[1][2]
    good = bytes(m.env.files[path].seen)
    for bit in range(size * 8):
        flipped = bytearray(good[at : at + size])
        flipped[bit // 8] ^= 1 << bit % 8
        m.damage(path, at, bytes(flipped))
        with pytest.raises(CorruptionError) as caught:
            m.log.read(1, 0, 1, 10, 1000)
        assert (caught.value.position, caught.value.next_offset) == (at, 2)
        assert [piece.first_offset for piece in m.log.read(1, 0, 0, 10, 1000)] == [0]
        assert [piece.first_offset for piece in m.log.read(1, 0, 2, 10, 1000)] == [2]


def test_damage_in_mid_log_is_stepped_over_and_reported(form):
    m = Machine(form, SimulatedEnv(), "/data")
    for body in (b"one", b"two", b"three"):
        m.append(1, 0, body)
    m.append(2, 0, b"other")
    path = m.file()
    _, at, size, _, _ = m.log.appender.index.entries(1, 0)[1]
    good = bytes(m.env.files[path].seen)
    for bit in range(0, size * 8, 3):
        flipped = bytearray(good[at : at + size])
        flipped[bit // 8] ^= 1 << bit % 8
        m.damage(path, at, bytes(flipped))
        m.kill()
        (damage,) = m.log.damage
        assert (damage.path, damage.position, damage.bytes_lost) == (path, at, (size + 7) & ~7)
        assert m.bodies(2, 0) == [b"other"]
        assert m.bodies(1, 0, 2) == [b"three"]
        with pytest.raises(CorruptionError) as caught:
            m.log.read(1, 0, 1, 10, 1000)
        assert caught.value.next_offset == 2
        assert m.append(1, 0, b"four") == 3
        m.damage(path, 0, good)
        m.kill()


def test_a_wiped_sector_loses_only_the_batches_in_it(machine):
    held = fill(machine, 60)
    path = machine.file(at=0)
    machine.damage(path, 1024, bytes(512))
    machine.env.stores.clear()
    for name in [name for name in machine.env.files if name.endswith(".idx")]:
        del machine.env.files[name]
    machine.kill()
    assert machine.log.damage
    for key, bodies in held.items():
        offset, seen, lost = 0, [], 0
        while offset < len(bodies):
            try:
                pieces = machine.log.read(*key, offset, 1, 1)
            except CorruptionError as error:
                assert error.next_offset > offset
                lost += error.next_offset - offset
                offset = error.next_offset
                continue
            seen.append(next(iter(machine.form.format.split_records(pieces[0].records))))
            assert seen[-1] == bodies[offset]
            offset += 1
        assert lost < 20 and len(seen) + lost == len(bodies)


@pytest.mark.parametrize("at", [0, 20, 40, 76, 90, 200, -1])
def test_a_damaged_index_file_is_rebuilt_when_it_is_met(machine, at):
    held = fill(machine)
    machine.close()
    path = machine.file(".idx", 0)
    good = bytes(machine.env.files[path].seen)
    at = at % len(good)
    machine.damage(path, at, bytes([good[at] ^ 4]))
    machine.open()
    assert_holds(machine, held)
    assert bytes(machine.env.files[path].seen) == good


def test_an_index_file_of_another_segment_is_not_taken(machine):
    held = fill(machine)
    machine.close()
    first, second = machine.file(".idx", 0), machine.file(".idx", 1)
    machine.damage(first, 0, bytes(machine.env.files[second].seen))
    machine.open()
    assert_holds(machine, held)


def test_an_old_copy_of_the_state_is_brought_up_to_date(machine):
    fill(machine, 100)
    machine.close()
    old = dict(machine.env.stores["/data/state"])
    machine.open()
    topic = machine.log.create_topics([("third", 1)])[0]
    bodies = [b"%d" % i * 100 for i in range(100)]
    for body in bodies:
        machine.append(topic.id, 0, body)
    machine.log.checkpoint()
    machine.close()
    machine.env.stores["/data/state"] = old
    machine.open()
    assert machine.log.topic("third") == topic
    assert machine.bodies(topic.id, 0) == bodies


def test_an_old_copy_of_the_segment_is_refused_and_nothing_is_changed(machine):
    machine.append(1, 0, b"a")
    path = machine.file()
    old = bytes(machine.env.files[path].seen)
    machine.append(1, 0, b"b")
    machine.log.checkpoint()
    machine.close()
    machine.damage(path, 0, old)
    before = {name: bytes(content.seen) for name, content in machine.env.files.items()}
    with pytest.raises(BehindCheckpointError, match="older copy"):
        machine.open()
    assert {name: bytes(content.seen) for name, content in machine.env.files.items()} == before
    machine.env.stores.clear()
    machine.open()
    assert machine.bodies(1, 0) == [b"a"]


def test_missing_segments_are_refused(machine):
    fill(machine)
    machine.close()
    machine.env.files.clear()
    with pytest.raises(BehindCheckpointError, match="no segment"):
        machine.open()


def test_a_directory_of_a_newer_version_is_refused(machine):
    machine.append(1, 0, b"a")
    path = machine.file()
    machine.close()
    head = bytearray(machine.env.files[path].seen[:64])
    head[7:8] = b"2"
    head[60:64] = machine.form.native.crc32c(bytes(head[:60])).to_bytes(4, "little")
    machine.damage(path, 0, bytes(head))
    with pytest.raises(VersionError, match="newer Penstock"):
        machine.open()


def test_a_damaged_segment_header_does_not_hide_its_batches(machine):
    held = fill(machine)
    machine.close()
    for at in range(2):
        machine.damage(machine.file(at=at), 3, b"?")
    machine.open()
    assert_holds(machine, held)


def test_a_second_open_of_the_directory_is_refused(any_machine):
    with pytest.raises(LockedError, match="held by another engine"):
        any_machine.form.log.open_log(any_machine.env, any_machine.directory, any_machine.config)
    any_machine.append(1, 0, b"still here")
    assert any_machine.bodies(1, 0) == [b"still here"]


def test_a_failing_disk_at_start_ends_the_process(machine):
    from engine.env.simulated import ProcessEnded

    machine.append(1, 0, b"a")
    machine.close()
    machine.env.fail("sync", errno.EIO)
    with pytest.raises(ProcessEnded):
        machine.open()
    machine.env.end_process()
    machine.open()
    assert machine.bodies(1, 0) == [b"a"]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_power_cut_at_any_operation_loses_nothing_that_was_confirmed(form, seed):
    cut_at = 1
    while True:
        m = Machine(form, SimulatedEnv(), "/data", segment_bytes=4096)
        m.durable()
        confirmed: list[bytes] = []
        attempted: list[bytes] = []
        m.env.power_cut_at = m.env.operations + cut_at
        try:
            for i in range(60):
                attempted.append(b"%03d" % i * 40)
                m.append(1, 0, attempted[-1])
                if i % 7 == 0:
                    m.log.put_progress([(b"key", b"%d" % i)])
                if i % 5 == 4 and m.durable():
                    confirmed = list(attempted)
                if i == 30:
                    m.log.create_topics([("late", 1)])
                    m.log.checkpoint()
            m.close()
        except PowerCut:
            pass
        else:
            break
        m.crash(Random(seed * 1000 + cut_at) if seed else None)
        found = survivors(m)
        assert found[: len(confirmed)] == confirmed, cut_at
        assert set(found) <= set(attempted)
        end = m.log.bounds(1, 0)[1]
        assert m.append(1, 0, b"again") == end
        late = m.log.create_topics([("late", 1), ("later", 1)])
        assert len({topic.id for topic in late} | {1, 2}) == 4
        m.close()
        cut_at += 1
    assert cut_at > 80


def survivors(m: Machine) -> list[bytes]:
    """What is readable of queue 0, with damaged places left out."""
    found: list[bytes] = []
    offset, end = m.log.bounds(1, 0)
    while offset < end:
        try:
            (piece,) = m.log.read(1, 0, offset, 1, 1)
            found += m.form.format.split_records(piece.records)
            offset += 1
        except CorruptionError as error:
            offset = error.next_offset
    return found


@pytest.mark.parametrize("how", ["sound", "create", "rename"])
def test_bytes_of_a_failed_sync_are_written_again_before_they_count_as_durable(machine, how):
    machine.append(1, 0, b"before")
    machine.env.fail("sync", errno.EIO)
    if how != "sound":
        machine.env.fail(how, errno.EDQUOT)
    with pytest.raises(ProcessEnded, match="fdatasync failed"):
        machine.log.when_durable(machine.log.end_position, lambda: None)
    machine.kill()
    assert machine.bodies(1, 0) == [b"before"]
    machine.crash()  # the first process' bytes were never written by the sync that failed
    assert machine.bodies(1, 0) == [b"before"]
    assert not machine.env.exists(f"{machine.directory}/log/sync-failed")


def test_sealing_goes_on_when_the_disk_has_room_again(machine):
    machine.env.fail("store", errno.ENOSPC)
    fill(machine)
    assert machine.log.segments.sealing
    machine.env.heal()
    machine.env.clock_ms += 2_000
    machine.log.retention.step()
    assert not machine.log.segments.sealing
