"""What `repair` does, and what it never does."""

import shutil

import pytest

from engine.errors import LockedError
from engine.log.format import split_records
from engine.log.offline.repair import carry_out, plan


def contents(path):
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def records(stopped):
    """All messages that a reader gets, by queue and offset."""
    log = stopped.open()
    found = {}
    for topic in log.topics():
        first, end = log.bounds(topic.id, 0)
        while first < end:
            for piece in log.read(topic.id, 0, first, 1000, 1 << 20):
                for data in split_records(piece.records):
                    found[topic.name, first] = data
                    first += 1
    log.close()
    return found


def test_a_plan_changes_nothing(stopped):
    stopped.files(".idx")[0].unlink()
    (stopped.path / "log" / "x.tmp").write_bytes(b"x")
    before = contents(stopped.path)
    assert {step.mend for step in plan(stopped.path).steps} == {"index", "leftover"}
    assert contents(stopped.path) == before


def test_indexes_are_built_again_as_they_were(stopped):
    first, second, third = stopped.files(".idx")[:3]
    before = [path.read_bytes() for path in (first, second, third)]
    first.unlink()
    second.write_bytes(b"nothing of an index")
    stopped.write(third, 100, b"\xff\xff")
    assert [step.mend for step in carry_out(plan(stopped.path))] == ["index"] * 3
    assert [path.read_bytes() for path in (first, second, third)] == before
    assert stopped.verify()[1] == []


def test_a_damaged_view_is_built_again_and_the_old_one_kept(stopped):
    before = records(stopped)
    for path in (stopped.path / "state").glob("*.sst"):
        stopped.write(path, 10, b"\xff" * 40)
    assert [step.mend for step in carry_out(plan(stopped.path))] == ["view"]
    assert stopped.verify()[1] == [] and records(stopped) == before
    assert (stopped.path / "state.damaged").is_dir()


def test_a_torn_tail_is_cut_and_nothing_else(stopped):
    before = records(stopped)
    number = next(number for number in range(9) if len(stopped.batches(number + 1)) == 0)
    last = stopped.batches(number)[-1]
    stopped.write(last.path, last.at + last.size + 7 & ~7, b"torn" * 2000)
    done = list(carry_out(plan(stopped.path)))
    assert [(step.mend, step.bytes) for step in done] == [("tail", 8000)]
    assert stopped.verify()[1] == [] and records(stopped) == before


def test_good_records_behind_damage_stay(stopped):
    """Damage in every segment, at the end of the open one too, with index and view gone."""
    lost = 0
    for number, _ in enumerate(stopped.files(".seg")):
        batches = stopped.batches(number)
        if batches:
            stopped.write(batches[-2].path, batches[-2].at + 60, b"\xff\xff")
            lost += batches[-2].count
    for path in stopped.files(".idx"):
        path.unlink()
    shutil.rmtree(stopped.path / "state")
    before, _ = stopped.verify()
    wanted = plan(stopped.path)
    assert sum(each.records or 0 for each in wanted.stays) == lost
    list(carry_out(wanted))
    after, found = stopped.verify()
    assert after.records == before.records
    assert {each.mend for each in found} == {""} and len(found) == len(wanted.stays)


def test_a_log_that_ends_too_early_is_accepted_with_its_loss_named(stopped):
    number = next(number for number in range(9) if len(stopped.batches(number + 1)) == 0)
    last = stopped.batches(number)[-1]
    stopped.write(last.path, last.at, bytes(last.size))
    assert [step.mend for step in carry_out(plan(stopped.path))] == ["view"]
    totals, found = stopped.verify()
    assert found == [] and totals.batches == 400 + 8 + 1 - 1


def test_a_running_engine_is_left_alone(stopped):
    log = stopped.open()
    with pytest.raises(LockedError):
        plan(stopped.path)
    log.close()
