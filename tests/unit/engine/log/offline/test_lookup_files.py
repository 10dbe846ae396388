"""Damaged lookup files: reports of `verify`, mending by `repair`, findings of the scrub."""

import struct
from pathlib import Path

import pytest

from engine.env.real import RealEnv
from engine.log.format import pack_batch, pack_record
from engine.log.lookup_index.maker import IDLE_S
from engine.log.offline import repair
from engine.log.upkeep.scrub import IDLE_S as SCRUB_IDLE_S
from engine.log.upkeep.scrub import Scrub


def text(field: int, value: bytes) -> bytes:
    return struct.pack(">bhi", 11, field, len(value)) + value


@pytest.fixture
def named(stopped):
    """The stopped log, gone on with messages that have ids and keys, and lookup files beside its full segments."""
    log = stopped.open()
    for number in range(300):
        message = text(2, bytes(400)) + text(3, b"key-%d" % (number % 7)) + text(6, b"id-%d" % number) + b"\0"
        log.append(pack_batch(0, 1, 1, [pack_record(message)]), 1, 1_700_000_001_000 + number)
    log.checkpoint()
    make(log)
    log.close()
    return stopped


def make(log) -> None:
    next(pause_s for pause_s in log.look_up.maker.steps() if pause_s == IDLE_S)


def faults(log) -> list[tuple[str, str]]:
    return [(Path(found.file).suffix, found.reason.partition(";")[0]) for found in log.verify()[1]]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_sound_files_are_no_finding_and_neither_are_missing_ones(named):
    assert len(named.files(".mid")) == len(named.files(".key")) == len(named.files(".idx"))
    assert faults(named) == []
    named.files(".mid")[0].unlink()
    assert faults(named) == []


@pytest.mark.parametrize("at", [0, 8, 60, 4000, 4095, 4096, 4100, 4200, 8191])
def test_a_flipped_bit_in_a_file_is_damage_of_that_file(named, at):
    flip(named.files(".mid")[-1], at)
    ((suffix, reason),) = faults(named)
    assert suffix == ".mid" and "verify" in reason


def test_a_file_that_lacks_a_name_or_has_another_segments_is_damage(named):
    path = named.files(".key")[-1]
    path.write_bytes(named.files(".key")[-2].read_bytes())
    named.files(".mid")[-1].write_bytes(named.files(".mid")[-1].read_bytes()[:4096])
    assert sorted(faults(named)) == [
        (".key", "it belongs to another segment"),
        (".mid", "it is not as long as its header says"),
    ]


def test_a_file_without_its_segment_and_one_of_the_open_segment_are_notes(named):
    made = named.files(".mid")[0]
    made.with_name(f"{1 << 50:020d}.mid").write_bytes(made.read_bytes())
    made.with_name(named.files(".seg")[-2].stem + ".key").write_bytes(made.read_bytes())
    assert {found.what for found in named.verify()[1]} == {"note"}
    assert len(faults(named)) == 2


def test_runs_that_a_killed_engine_left_are_notes_which_repair_and_the_next_start_remove(named):
    log = named.open()
    log.look_up.maker.partials.partial_bytes = 1000
    make(log)
    left = {path: path.read_bytes() for path in named.files(".tmp")}
    log.close()
    assert left and not named.files(".tmp")

    def leave() -> None:
        for path, data in left.items():
            path.write_bytes(data)
        assert {found.what for found in named.verify()[1]} == {"note"} and len(faults(named)) == len(left)

    leave()
    assert len(list(repair.carry_out(repair.plan(named.path)))) == len(left)
    assert not named.files(".tmp") and faults(named) == []
    leave()
    named.open().close()
    assert not named.files(".tmp")


def test_repair_removes_a_damaged_file_and_the_engine_makes_it_again(named):
    path = named.files(".mid")[-1]
    whole = path.read_bytes()
    flip(path, 5000)
    assert [step.file for step in repair.carry_out(repair.plan(named.path))] == [str(path)]
    assert not path.exists() and faults(named) == []
    log = named.open()
    make(log)
    log.close()
    assert path.read_bytes() == whole


def test_the_scrub_has_a_damaged_file_made_again(named):
    path = named.files(".key")[-1]
    whole = path.read_bytes()
    flip(path, 4200)
    log = named.open()
    maker = log.look_up.maker
    scrub = Scrub(RealEnv(), f"{named.path}/log", log.log_id, 1 << 30, maker)
    next(pause_s for pause_s in scrub.steps() if pause_s == SCRUB_IDLE_S)
    assert maker.counts.damage == 1 and scrub.counts.damage == 0
    make(log)
    log.close()
    assert path.read_bytes() == whole
