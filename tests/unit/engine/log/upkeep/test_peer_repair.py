"""Damage of one log is repaired from the other: flipped bits and missing files, until both are equal byte for byte."""

from random import Random

import pytest
from lives import live
from pair import HEADER, Pair

from engine.env.simulated import PowerCut, SimulatedEnv

LIMIT = 1 << 62


@pytest.fixture
def pair(form):
    made = Pair(form, SimulatedEnv(), SimulatedEnv())
    random = Random(3)
    live(made.master, random, 120)
    made.follow(random)
    made.slave.log.checkpoint()
    yield made
    made.close()


def fetch_from(machine):
    """The other broker's answers to FETCH."""

    def fetch(base: int, address: int, size: int) -> bytes:
        return machine.env.open(machine.log.raw.path_of(base)).read_at(size, address)

    return fetch


def repair(machine, fetch, limit: int = LIMIT):
    """Check all suspects once; returns the outcomes by base."""
    machine.log.repairs.look(0)
    found = {}
    for base in machine.log.repairs.suspects.all():
        steps = machine.log.repairs.steps(base, limit, fetch)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found[base] = end.value
                break
    return found


def flip(machine, base: int, at: int, mask: int = 1) -> None:
    content = machine.env.files[machine.file(at=0).replace(f"{0:020d}", f"{base:020d}")]
    content.seen[at] ^= mask
    content.sync()


def whole(machine) -> bool:
    """Whether every byte of every sealed segment is right, as the scrub sees it."""
    log = machine.log
    for base in log.segments.sealed.bases:
        log.repairs.suspects.add(base)
    outcomes = repair(machine, lambda *_: b"")
    return not any(each.left for each in outcomes.values())


def test_flipped_bits_of_sealed_segments_are_repaired_in_place(pair):
    master, slave = pair.master, pair.slave
    bases = sorted(slave.log.segments.sealed.bases)
    assert len(bases) > 2
    random = Random(1)
    for base in bases:
        for at in (random.randrange(HEADER), random.randrange(HEADER, 6000), random.randrange(HEADER, 6000)):
            flip(slave, base, at)
        slave.log.repairs.suspects.add(base)
    assert not whole(slave)
    outcomes = repair(slave, fetch_from(master))
    assert sum(each.ranges for each in outcomes.values()) >= len(bases)
    assert not slave.log.repairs.suspects.all() and whole(slave)
    pair.assert_equal()
    slave.reopen()
    assert not slave.log.damage
    pair.assert_equal()


def test_a_master_takes_the_bytes_of_its_slave_while_it_goes_on(pair):
    master, slave = pair.master, pair.slave
    base = min(master.log.segments.sealed.bases)
    flip(master, base, 700)
    live(master, Random(4), 5)
    with pytest.raises(Exception, match="verify"):
        while True:
            read_raw(master, base)
    repair(master, fetch_from(slave), limit=slave.log.end_position)
    pair.follow(Random(2))
    pair.assert_equal()


def read_raw(machine, base: int) -> None:
    at = base + HEADER
    while data := machine.log.raw.read(at, 3000):
        at += len(data)
    raise AssertionError("no damage was met")


def test_damaged_bytes_above_the_limit_and_of_a_peer_without_them_are_left(pair):
    master, slave = pair.master, pair.slave
    base = sorted(slave.log.segments.sealed.bases)[1]
    flip(slave, base, 200)
    slave.log.repairs.suspects.add(base)
    (outcome,) = repair(slave, fetch_from(master), limit=base + 100).values()
    assert outcome.bytes == 0
    flip(master, base, 200)
    slave.log.repairs.suspects.add(base)
    (outcome,) = repair(slave, fetch_from(master)).values()
    assert outcome.left and not outcome.bytes
    assert slave.log.repairs.suspects.all() == [base], "it is tried again"


def test_the_bytes_of_another_place_or_log_are_not_taken(pair):
    slave = pair.slave
    base = sorted(slave.log.segments.sealed.bases)[1]
    flip(slave, base, 200)
    slave.log.repairs.suspects.add(base)
    fetch = fetch_from(pair.master)
    (outcome,) = repair(slave, lambda _, at, size: fetch(0, at, size)).values()
    assert outcome.left and not outcome.bytes


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_segment_is_copied_and_counts_from_the_next_start_on(pair, which):
    master, slave = pair.master, pair.slave
    base = sorted(slave.log.segments.sealed.bases)[which]
    path = slave.file(at=which)
    slave.close()
    del slave.env.files[path]
    slave.open()
    outcomes = repair(slave, fetch_from(master))
    assert outcomes[base].is_restored and outcomes[base].is_stale
    slave.reopen()
    assert base in slave.log.segments.sealed.bases
    pair.assert_equal()


def test_a_file_that_is_lost_while_the_log_is_open_is_copied_and_read(pair):
    master, slave = pair.master, pair.slave
    base = sorted(slave.log.segments.sealed.bases)[1]
    del slave.env.files[slave.file(at=1)]
    outcomes = repair(slave, fetch_from(master))
    assert outcomes[base].is_restored and not outcomes[base].is_stale
    pair.assert_equal()


def test_an_index_that_was_made_from_damaged_bytes_is_made_again(pair):
    master, slave = pair.master, pair.slave
    base = sorted(slave.log.segments.sealed.bases)[1]
    path = slave.file(at=1)
    slave.close()
    slave.env.files[path].seen[HEADER + 4] ^= 0x40  # the size of the first batch
    slave.env.files[path].sync()
    del slave.env.files[path.replace(".seg", ".idx")]
    slave.open()
    assert slave.log.segments.at(base).sealed is not None
    slave.log.repairs.suspects.add(base)
    repair(slave, fetch_from(master))
    pair.assert_equal()


def test_a_repair_that_is_cut_off_anywhere_can_be_repeated(form):
    for cut in range(1, 200):
        made = Pair(form, SimulatedEnv(), SimulatedEnv())
        live(made.master, Random(3), 60)
        made.follow(Random(3))
        made.slave.log.checkpoint()
        _, second = sorted(made.slave.log.segments.sealed.bases)[:2]
        for at in (20, 300, 3000):
            flip(made.slave, second, at)
        made.slave.log.repairs.suspects.add(second)
        del made.slave.env.files[made.slave.file(at=0)]
        made.slave.env.power_cut_at = made.slave.env.operations + cut
        try:
            repair(made.slave, fetch_from(made.master))
            is_whole = True
        except PowerCut:
            is_whole = False
        made.slave.env.power_cut_at = 0
        made.slave.crash(Random(cut))
        made.slave.log.repairs.suspects.add(second)
        repair(made.slave, fetch_from(made.master))
        made.slave.reopen()
        made.assert_equal()
        made.close()
        if is_whole:
            break
    assert 10 < cut < 199
