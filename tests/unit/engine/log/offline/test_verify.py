"""Reports of `verify` on good, torn and damaged directories."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.env.real import RealEnv
from engine.errors import LockedError
from engine.log.format import BATCH_HEADER
from engine.log.offline.directory import NoLogError, find, opened
from engine.log.segment.native import BatchReader
from engine.log.segment.segment import open_segment
from engine.log.write.sealer import ensure_index

NOW = 1_700_000_000_000


def tell(findings, what="damage"):
    return [
        (found.file.rsplit("/", 1)[1], found.position, found.bytes, found.records)
        for found in findings
        if found.what == what
    ]


def contents(path):
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_good_directory_has_no_findings_and_is_left_as_it_was(stopped):
    before = contents(stopped.path)
    totals, found = stopped.verify()
    assert found == [] and totals.damage == 0
    assert totals.records == sum(1 + number % 4 for number in range(400)) + 8 + 2
    assert contents(stopped.path) == before


KILLED = """
import os, sys
from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import pack_batch, pack_record

log = open_log(RealEnv(), sys.argv[1], LogConfig(segment_bytes=1 << 16))
for _ in range(300):
    log.append(pack_batch(0, 1, 1, [pack_record(b"x" * 900)]), 1, 1)
os._exit(9)
"""


def test_a_directory_whose_engine_was_killed_is_good(stopped):
    """Full segments may lack their index, and the checkpoint is behind."""
    subprocess.run([sys.executable, "-c", KILLED, str(stopped.path)], cwd=Path(__file__).parents[5], check=False)
    totals, found = stopped.verify()
    assert tell(found) == [] and totals.damage == 0 and totals.batches > 700


def test_an_index_that_was_made_without_the_header_of_its_segment_is_sound(stopped):
    """Its times are relative to the first batch's."""
    path = stopped.files(".idx")[1]
    path.unlink()
    segment = open_segment(RealEnv(), str(path.parent), int(path.stem))
    segment.is_header_made = True
    ensure_index(RealEnv(), BatchReader(segment.header.log_id), segment)
    segment.close()
    first = stopped.batches(1)[0]
    stored_ms = BATCH_HEADER.unpack_from(first.path.read_bytes(), first.at)[11]
    assert path.exists() and segment.header.created_ms == stored_ms
    assert stopped.verify()[1] == []


def test_a_damaged_batch_is_named_with_its_file_position_and_records(stopped):
    batch = stopped.batches(1)[3]
    stopped.write(batch.path, batch.at + 60, b"\xff")
    _, found = stopped.verify()
    assert tell(found) == [(batch.path.name, batch.position, batch.size + 7 & ~7, batch.count)]
    assert "offsets=" in found[0].reason


def test_a_batch_whose_header_is_destroyed_is_known_by_the_index(stopped):
    first, second, third = stopped.batches(1)[3:6]
    stopped.write(first.path, first.at, bytes(third.at - first.at))
    _, found = stopped.verify()
    assert tell(found) == [(first.path.name, first.position, third.at - first.at, first.count + second.count)]


def test_the_zeroed_end_of_a_sealed_segment_is_damage_by_its_index(stopped):
    last = stopped.batches(1)[-1]
    stopped.write(last.path, last.at + 4, bytes(last.size - 4))
    _, found = stopped.verify()
    assert (last.path.name, last.position, last.count) in [(name, at, count) for name, at, _, count in tell(found)]


def test_the_missing_end_of_a_full_segment_is_damage_by_the_header_of_the_next_one(stopped):
    """A power cut has taken it, and no start has made an index yet."""
    *_, last = stopped.batches(1)
    end = last.at + last.size + 7 & ~7
    stopped.write(last.path, last.at, bytes(end - last.at))
    last.path.with_suffix(".idx").unlink()
    _, found = stopped.verify()
    assert (last.path.name, last.position, end - last.at, None) in tell(found)
    assert any("by the header of the next one" in each.reason for each in found)


def test_a_torn_tail_of_the_open_segment_is_told_apart_from_damage(stopped):
    open_segment = next(number for number in range(9) if len(stopped.batches(number + 1)) == 0)
    last = stopped.batches(open_segment)[-1]
    end = last.at + last.size + 7 & ~7
    stopped.write(last.path, end, b"garbage of an append that was under way")
    totals, found = stopped.verify()
    assert totals.damage == 0 and totals.torn_tail_bytes == 39
    assert tell(found, "torn tail") == [(last.path.name, last.position - last.at + end, 39, None)]


def test_a_bad_end_below_what_was_durable_is_damage(stopped):
    open_segment = next(number for number in range(9) if len(stopped.batches(number + 1)) == 0)
    last = stopped.batches(open_segment)[-1]
    stopped.write(last.path, last.at + 60, b"\xff")
    totals, found = stopped.verify()
    assert totals.damage == 2 and totals.torn_tail_bytes == 0
    assert tell(found)[0] == (last.path.name, last.position, last.size, last.count)


def test_a_damaged_header_costs_no_record(stopped):
    before, _ = stopped.verify()
    stopped.write(stopped.files(".seg")[1], 20, b"\xff\xff")
    totals, found = stopped.verify()
    assert tell(found) == [(stopped.files(".seg")[1].name, int(stopped.files(".seg")[1].stem), 64, 0)]
    assert totals.records == before.records


@pytest.mark.parametrize("at", [0, 30, 90, -1])
def test_a_flipped_bit_in_an_index_is_found(stopped, at):
    path = stopped.files(".idx")[1]
    at %= path.stat().st_size
    stopped.write(path, at, bytes([path.read_bytes()[at] ^ 4]))
    _, found = stopped.verify()
    assert tell(found) == [(path.name, 0, 0, 0)]


def test_an_index_of_another_segment_and_a_missing_one_are_found(stopped):
    first, second = stopped.files(".idx")[:2]
    shutil.copy(first, second)
    first.unlink()
    _, found = stopped.verify()
    assert [(name, "missing" in each.reason) for each, (name, *_) in zip(found, tell(found), strict=True)] == [
        (first.name, True), (second.name, False),
    ]  # fmt: skip


def test_a_missing_segment_is_found(stopped):
    gone = stopped.files(".seg")[1]
    gone.unlink()
    _, found = stopped.verify()
    assert any(f"the segment at {int(gone.stem)} is missing" in each.reason for each in found if each.what == "damage")


def test_a_view_of_an_earlier_state_that_claims_to_be_of_now_is_found(stopped):
    from engine.env.store import RocksStore
    from engine.log.view import queue_key

    store = RocksStore(str(stopped.path / "state"), 1 << 20)
    store.write([(b"pgroup", b"another value")], [b"tpay", queue_key(1, 0, 0)])
    store.flush()
    store.close()
    _, found = stopped.verify()
    reasons = " ".join(each.reason for each in found)
    assert "topic=pay" in reasons and "progress key=" in reasons and "topic=1 queue=0: offsets 0.." in reasons


def test_without_a_view_the_log_is_good_and_the_view_a_note(stopped):
    shutil.rmtree(stopped.path / "state")
    totals, found = stopped.verify()
    assert totals.damage == 0 and [each.what for each in found] == ["note"]


def test_a_batch_larger_than_the_window_is_found_behind_damage(stopped, monkeypatch):
    from engine.log.segment import window_scan

    monkeypatch.setitem(window_scan.WindowScan.__init__.__kwdefaults__, "window_bytes", 4096)
    log = stopped.open()
    from engine.log.format import pack_batch, pack_record

    small = pack_batch(0, 1, 1, [pack_record(b"s" * 100)])
    large = pack_batch(0, 1, 1, [pack_record(bytes(range(256)) * 120)])
    start = log.end_position
    for batch in (small, large, small, large):
        assert log.append(batch, 1, 1)[0][0] == 0
    log.checkpoint()
    log.close()
    good, found = stopped.verify()
    assert found == []
    path = next(path for path in reversed(stopped.files(".seg")) if int(path.stem) <= start)
    stopped.write(path, start - int(path.stem) + 50, b"\xff")
    totals, found = stopped.verify()
    assert [records for *_, records in tell(found)] == [1] and totals.records == good.records - 1


def test_a_running_engine_is_not_disturbed(stopped):
    log = stopped.open()
    with pytest.raises(LockedError, match="running engine"), opened(stopped.path):
        pass
    log.close()


def test_the_engines_folder_in_a_data_directory_is_found(stopped, tmp_path):
    shutil.move(stopped.path, tmp_path / "all" / "engine")
    assert find(tmp_path / "all") == str(tmp_path / "all" / "engine")
    with pytest.raises(NoLogError):
        find(tmp_path)


def test_a_topic_that_the_log_has_forgotten_is_no_fault_of_the_view(stopped):
    log = stopped.open()
    created = log.create_topics([("passing", 1), ("last", 1)])[0]
    assert log.end_if_empty(created) == 0
    log.forget_topic(created)
    log.checkpoint()
    log.close()
    totals, found = stopped.verify()
    assert totals.damage == 0 and found == []


def test_a_view_that_still_has_a_forgotten_topic_is_found(stopped):
    from engine.env.store import RocksStore

    log = stopped.open()
    created = log.create_topics([("passing", 1), ("last", 1)])[0]
    log.forget_topic(created)
    log.checkpoint()
    log.close()
    store = RocksStore(str(stopped.path / "state"), 1 << 20)
    store.write([(b"i" + created.id.to_bytes(4, "big"), (1).to_bytes(4, "little") + b"passing")])
    store.flush()
    store.close()
    _, found = stopped.verify()
    assert any("the log has forgotten it" in each.reason for each in found)
