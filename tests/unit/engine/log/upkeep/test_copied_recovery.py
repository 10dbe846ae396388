"""How far a source is copied survives starts, torn tails, lost views, retention, and the way to another broker."""

import logging
from random import Random

import pytest
from copier import OTHER, SOURCE, Copier, stored_offsets
from machine import SEGMENT, Machine
from pair import Pair, cut

from engine.env.real import RealEnv
from engine.env.simulated import SimulatedEnv
from engine.link.codes import OK, SOURCE_MOVED
from engine.log.offline.directory import opened
from engine.log.offline.dump import DumpQuery, dump
from engine.log.offline.verify import verify
from engine.log.write.copied_state import CopiedState
from engine.ops.copied import renumber_doubtful


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def begin(machine, **where) -> Copier:
    copier = Copier(machine, **where)
    copier.accept()
    return copier


def fill(machine, segments: int, queue: int = 1) -> None:
    """Store messages over so many segments, in another queue."""
    base = machine.log.appender.segment_base
    while machine.log.appender.segment_base < base + segments * SEGMENT:
        machine.append(1, queue, bytes(700))


def lose_view(machine) -> None:
    machine.close()
    machine.env.stores.clear()
    machine.open()


def lose_view_and_indexes(machine) -> None:
    machine.close()
    machine.env.stores.clear()
    for path in [path for path in machine.env.files if path.endswith(".idx")]:
        del machine.env.files[path]
    machine.open()


RESTARTS = {
    "stop": Machine.reopen, "kill": Machine.kill, "lost view": lose_view, "lost indexes": lose_view_and_indexes,
}  # fmt: skip


@pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)
@pytest.mark.parametrize("segments", [0, 1, 3])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_start_knows_the_next_offset(machine, restart, segments, checkpoint):
    copier, other = begin(machine), begin(machine, queue=2)
    copier.copy(0, 1)
    other.copy(0)
    if checkpoint:
        machine.log.checkpoint()
    copier.copy(5)
    machine.append(1, 0, b"sent")
    fill(machine, segments)
    restart(machine)
    assert machine.log.copied.state(1, 0) == CopiedState(1, 6, 3)
    assert machine.log.copied.state(1, 2) == CopiedState(1, 1, 1)
    assert machine.log.copied.sources(1, 0)[0].source == SOURCE
    assert copier.copy(6).code == OK
    assert stored_offsets(machine) == [0, 1, 5, None, 6]
    assert machine.log.damage == []


@pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)
def test_the_last_batch_of_a_full_segment_counts(machine, restart):
    copier = begin(machine)
    base, number = machine.log.appender.segment_base, 0
    while machine.log.appender.segment_base == base:
        copier.copy(number, size=200)
        number += 1
    restart(machine)
    assert machine.log.copied.state(1, 0) == CopiedState(1, number, number)


@pytest.mark.parametrize("seed", range(40))
def test_after_a_torn_tail_the_source_goes_on_where_the_log_ends(machine, seed):
    copier, random = begin(machine), Random(seed)
    copier.copy(0)
    assert machine.durable()
    for number in range(1, 1 + random.randrange(14)):
        copier.copy(number, size=random.randrange(400))
    machine.crash(random)
    offsets = stored_offsets(machine)
    copier.ask()
    if not machine.log.damage:
        assert offsets == list(range(copier.next))
    assert copier.next >= 1
    assert set(range(copier.next)) <= set(offsets), "a record below the next offset is lost"


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_that_a_power_cut_takes_from_between_is_copied_again(machine, seed):
    copier, random = begin(machine), Random(seed)
    assert machine.durable()
    for number in range(60):
        copier.copy(number, size=random.randrange(600))
    machine.crash(random)
    is_torn = bool(machine.log.doubtful)
    renumber_doubtful(machine.log, 1)
    copier.ask()
    assert (copier.number == 2) == is_torn
    assert set(range(copier.next)) <= set(stored_offsets(machine)), "a record below the next offset is lost"
    following = copier.next
    for restart in (Machine.reopen, lose_view_and_indexes):
        machine.log.checkpoint()
        restart(machine)
        copier.ask()
        assert copier.next == following, "what follows the damage counts after all"
    while copier.next < 60:
        assert copier.copy(copier.next).code == OK
    offsets = stored_offsets(machine)
    assert set(offsets) == set(range(60))
    if not machine.log.damage:
        assert offsets == list(range(60))


def test_a_copier_that_believes_in_what_a_power_cut_took_is_refused(machine):
    copier = begin(machine)
    assert machine.durable()
    copier.copy(0, 1)
    machine.crash()
    assert stored_offsets(machine) == []
    assert copier.copy(2) == (SOURCE_MOVED, 1, 0, 0), "0 and 1 would be lost"


def run_retention(machine, segments: int) -> None:
    machine.log.checkpoint()
    until = machine.env.clock_ms + 60_000
    while machine.log.retention.deleted_segments < segments:
        assert machine.env.clock_ms < until
        machine.env.clock_ms += machine.log.retention.step()


@pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)
@pytest.mark.parametrize("rounds", [1, 3])
def test_retention_keeps_the_next_offset_of_deleted_batches(form, restart, rounds):
    machine = Machine(form, SimulatedEnv(), "/data", log_bytes_max=2 * SEGMENT)
    copier, moved = begin(machine), begin(machine, queue=2)
    copier.copy(0, 1, 7)
    moved.source = OTHER
    moved.accept(start=40, replaces=1)
    untouched = begin(machine, queue=3)
    for _ in range(rounds):
        fill(machine, 4)
        run_retention(machine, machine.log.retention.deleted_segments + 2)
    assert machine.log.bounds(1, 0) == (3, 3), "its messages are gone"
    restart(machine)
    assert machine.log.copied.state(1, 0) == CopiedState(1, 8, 3)
    assert machine.log.copied.state(1, 2) == CopiedState(2, 40, 0)
    assert machine.log.copied.state(1, 3) == CopiedState(1, 0, 0)
    assert [each.source for each in machine.log.copied.sources(1, 2)] == [SOURCE, OTHER]
    assert copier.copy(7).code == SOURCE_MOVED or copier.next == 8
    for each in (copier, moved, untouched):
        each.ask()
        assert each.copy(each.next).code == OK
    machine.close()


def test_retention_in_a_log_without_sources_appends_nothing_for_them(form):
    machine = Machine(form, SimulatedEnv(), "/data", log_bytes_max=2 * SEGMENT)
    fill(machine, 4)
    run_retention(machine, 2)
    assert [key for key, _ in machine.log.progress(b"\0cop")] == []
    machine.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_slave_has_the_masters_next_offsets_and_goes_on(form, seed):
    pair, random = Pair(form, SimulatedEnv(), SimulatedEnv()), Random(seed)
    copier = begin(pair.master)
    number = 0
    for _ in range(30):
        count = random.randint(1, 3)
        copier.copy(*range(number, number + count), size=random.randrange(500))
        number += count
        if random.random() < 0.5:
            pair.master.append(1, random.randrange(4), bytes(random.randrange(300)))
        if random.random() < 0.3:
            pair.follow(random)
        if random.random() < 0.1:
            pair.slave.kill()
    pair.follow(random)
    pair.assert_equal()
    assert pair.slave.log.copied.state(1, 0) == pair.master.log.copied.state(1, 0)
    copier.machine = pair.slave
    assert copier.copy(number).code == OK
    pair.close()


@pytest.mark.parametrize("segments", [0, 2])
def test_truncation_takes_the_next_offset_back_with_the_records(form, segments):
    pair, random = Pair(form, SimulatedEnv(), SimulatedEnv()), Random(1)
    copier = begin(pair.master)
    copier.copy(0, 1)
    pair.follow(random)
    position = pair.slave.log.end_position
    zombie = Copier(pair.slave)
    zombie.ask()
    zombie.copy(2, 3, 4)
    fill(pair.slave, segments)
    pair.slave.log.checkpoint()
    cut(pair.slave, position)
    assert pair.slave.log.copied.state(1, 0) == CopiedState(1, 2, 2)
    copier.copy(2)
    pair.follow(random)
    pair.assert_equal()
    pair.close()


def test_a_topic_that_is_forgotten_leaves_no_source(machine):
    (topic, _) = machine.log.create_topics([("gone", 1), ("highest", 1)])
    begin(machine, topic_id=topic.id)
    assert len(list(machine.log.progress(b"\0source"))) == 1
    machine.log.forget_topic(topic)
    assert list(machine.log.progress(b"\0source")) + list(machine.log.progress(b"\0copied")) == []


def test_tools_show_sources_and_find_nothing_wrong(form, tmp_path):
    machine = Machine(form, RealEnv(), str(tmp_path))
    copier = begin(machine)
    machine.append(1, 0, b"sent")
    copier.copy(3, 4)
    fill(machine, 2)
    copier.copy(9)
    machine.log.checkpoint()
    copier.copy(12)
    machine.close()
    with opened(tmp_path) as directory:
        found = []
        verify(directory, found.append)
        assert found == []
        batches = list(dump(directory, DumpQuery(topic="first", queue=0)))
        assert [(row.get("source"), row["records"]) for row in batches] == [(None, 1), (1, 2), (1, 1), (1, 1)]
        rows = list(dump(directory, DumpQuery(topic="first", queue=0, records=True)))
        assert [row.get("source_offset") for row in rows] == [None, 3, 4, 9, 12]
        assert rows[1]["size"] == len(b"record 3")
