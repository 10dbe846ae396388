"""A truncated log is the one that it was at that position, whatever comes in between; what it loses is kept aside."""

import errno
from copy import copy
from dataclasses import replace
from random import Random

import pytest
from lives import contents, live
from machine import Machine

from engine.env.real import RealEnv
from engine.env.simulated import PowerCut, ProcessEnded, SimulatedEnv
from engine.errors import CorruptionError, DiskFullError, LogError
from engine.log.offline.directory import opened
from engine.log.offline.dump import DumpQuery, dump
from engine.log.upkeep.truncation import TruncationOrder, order_truncation
from engine.log.view import CHECKPOINT_KEY, Checkpoint

HEADER = 64


class Diverged:
    """A closed log that has gone on after `position`, with what it held there."""

    def __init__(
        self,
        form,
        env=None,
        directory: str = "/slave",
        *,
        common: int = 80,
        own: int = 80,
        seed: int = 1,
        killed: bool = False,
        rolled: bool = False,
        cut_at: int = 0,
    ) -> None:
        self.machine = Machine(form, env or SimulatedEnv(), directory)
        self.env = self.machine.env
        random = Random(seed)
        live(self.machine, random, common)
        if rolled:
            self.begin_segment()
        self.position = self.machine.log.end_position
        self.log_id = self.machine.log.log_id
        self.kept = self.after_restart()
        assert self.machine.durable()
        self.go_on(random, own, killed, cut_at)

    def go_on(self, random: Random, steps: int, killed: bool, cut_at: int) -> None:
        """Store what the other log does not have; until a power cut at that operation, unless it is 0."""
        self.env.power_cut_at = self.env.operations + cut_at if cut_at else 0
        try:
            live(self.machine, random, steps)
            self.end, self.last_base = self.machine.log.end_position, self.machine.log.segments.active.base
            assert self.machine.durable()
        except PowerCut:
            self.env.crash(random)
            self.machine.log = None
        if killed:  # without a checkpoint at the end
            self.env.end_process()
            self.machine.log = None
        self.env.power_cut_at = 0
        self.machine.close()

    def begin_segment(self) -> None:
        """Continue in a segment without a batch, as a slave does."""
        active = self.machine.log.segments.active
        header = replace(active.header, base=active.next_base)
        self.machine.log.follower.begin_segment(header.pack())

    def after_restart(self) -> dict:
        """Start another process on a copy of the files, and return what it reads."""
        other, other.log = copy(self.machine), None
        other.env = SimulatedEnv()
        other.env.files = {path: copy(content) for path, content in self.env.files.items()}
        for content in other.env.files.values():
            content.durable, content.seen, content.changes = bytearray(content.seen), bytearray(content.seen), []
        other.open()
        return held(other)

    def order(self, *, log_id: bytes | None = None, position: int | None = None) -> None:
        order = TruncationOrder(
            self.log_id if log_id is None else log_id, 7, self.position if position is None else position
        )
        order_truncation(self.env, self.machine.directory, order)

    def taken(self) -> list[int]:
        """Positions of the batches that were taken off."""
        found, folder = [], f"{self.machine.directory}/diverged/7-{self.position}/log"
        for name in self.env.list(folder):
            base, file = int(name.removesuffix(".seg")), self.env.open(f"{folder}/{name}")
            at = max(HEADER, self.position - base)
            while size := int.from_bytes(file.read_at(4, at + 4), "little"):
                found.append(base + at)
                at += (size + 7) & ~7
        return found

    def assert_truncated(self) -> None:
        found = held(self.machine)
        if found["end"] == self.position:  # a last segment without a batch may be the active one, or the next one
            found |= {each: self.kept[each] for each in ("end", "segments")}
        assert found == self.kept
        assert not self.env.exists(f"{self.machine.directory}/truncate")


def held(machine: Machine) -> dict:
    """All that readers and groups get, and the log's place."""
    log = machine.log
    queues = [(topic.id, queue) for topic in log.topics() for queue in range(topic.queues)]
    return {
        "end": log.end_position,
        "segments": {*log.segments.sealed.bases, log.segments.active.base},
        "topics": log.topics(),
        "progress": dict(log.progress()),
        "bounds": {queue: log.bounds(*queue) for queue in queues},
        "messages": {queue: contents(machine, *queue) for queue in queues},
    }


@pytest.mark.parametrize("seed", range(8))
def test_a_truncated_log_is_the_one_that_it_was_and_goes_on_from_there(form, seed):
    steps = {"common": Random(seed).randrange(1, 150), "own": Random(-seed).randrange(1, 150)}
    made = Diverged(form, seed=seed, killed=bool(seed & 1), rolled=bool(seed & 2), **steps)
    made.order()
    made.machine.open()
    made.assert_truncated()
    made.machine.crash(Random(seed))
    made.assert_truncated()
    live(made.machine, Random(seed + 100), 60)
    made.machine.reopen()
    before = held(made.machine)
    for start in (made.machine.kill, made.machine.crash, made.machine.reopen):
        start()
        assert held(made.machine) == before


def test_it_is_so_on_real_files_too(form, tmp_path):
    made = Diverged(form)
    for path, content in made.env.files.items():
        target = tmp_path / path.removeprefix("/slave/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.seen)
    made.env, made.machine.env, made.machine.directory = RealEnv(), RealEnv(), str(tmp_path)
    made.order()
    made.machine.open()
    made.assert_truncated()
    made.machine.close()
    with opened(tmp_path / f"diverged/7-{made.position}") as directory:
        rows = list(dump(directory, DumpQuery()))
    assert [row["position"] for row in rows if "damage" not in row] == made.taken()


def killed(form) -> Diverged:
    return Diverged(form, common=30, own=60, killed=True)


def begun(form) -> Diverged:
    """The position is before the first batch of a segment."""
    return Diverged(form, common=30, own=60, killed=True, rolled=True)


def half_sealed(form) -> Diverged:
    """The power was cut between the index file of a segment after the position and the checkpoint."""
    for cut_at in range(1, 300):
        made = Diverged(form, seed=0, common=20, own=90, cut_at=cut_at)
        checkpoint = Checkpoint.parse(made.env.stores["/slave/state"].get(CHECKPOINT_KEY, b""))
        if any(path.endswith(".idx") for path in made.env.files) and (
            checkpoint is None or checkpoint.durable_position <= made.position
        ):
            return made
    raise AssertionError("no such cut")


@pytest.mark.parametrize("kind", ["power cut", "torn", "kill"])
@pytest.mark.parametrize("life", [killed, begun, half_sealed])
def test_at_every_cut_the_next_start_goes_on_with_it(form, kind, life):
    whole = life(form)
    whole.order()
    whole.machine.open()
    whole.machine.close()
    taken, cut = whole.taken(), 0
    assert taken
    while cut < 200:
        cut += 1
        made = life(form)
        made.order()
        made.env.power_cut_at = made.env.operations + cut
        try:
            made.machine.open()
        except PowerCut:
            made.machine.log = None
        made.env.power_cut_at = 0
        if made.machine.log is not None:
            break
        if kind == "kill":
            made.env.end_process()
        else:
            made.env.crash(Random(cut) if kind == "torn" else None)
        made.machine.open()
        made.assert_truncated()
        made.machine.close()
        assert made.taken() == taken
    assert 10 < cut < 200


@pytest.mark.parametrize("first", [1, 2])
def test_it_does_not_matter_where_the_power_was_cut_before(form, first):
    for cut_at in range(first, 250, 2):
        made = Diverged(form, seed=0, common=20, own=90, cut_at=cut_at)
        made.order()
        made.machine.open()
        made.assert_truncated()
        made.machine.close()


def test_what_is_taken_off_is_kept_from_the_position_to_the_end(form):
    made = Diverged(form, common=20, own=100)
    made.order()
    made.machine.open()
    taken = made.taken()
    assert taken == sorted(taken) and taken[0] == made.position
    last = made.env.open(f"/slave/diverged/7-{made.position}/log/{made.last_base:020d}.seg")
    assert taken[-1] + int.from_bytes(last.read_at(4, taken[-1] - made.last_base + 4), "little") <= made.end


def test_a_log_that_ends_at_the_position_only_forgets_the_order(form):
    made = Diverged(form, own=0)
    made.order()
    made.machine.open()
    made.assert_truncated()
    assert not [path for path in made.env.files if "diverged" in path]


def test_a_view_that_cannot_know_what_is_taken_off_is_kept(form, caplog):
    made = Diverged(form, common=3, own=3)
    made.machine.open()
    made.machine.kill()  # no checkpoint since the start
    made.machine.env.end_process()
    made.machine.log = None
    made.order(position=made.end)
    made.machine.open()
    assert "is made again" not in caplog.text
    made.machine.log.checkpoint()  # at the end
    made.machine.close()
    made.order()
    made.machine.open()
    assert "is made again" in caplog.text
    made.assert_truncated()


@pytest.mark.parametrize(
    ("changes", "error"), [({"log_id": bytes(16)}, "but this is log"), ({"position": 40}, "below the first segment")]
)
def test_an_order_for_another_log_or_place_is_refused_and_changes_nothing(form, changes, error):
    made = Diverged(form)
    made.order(**changes)
    before = {path: bytes(content.seen) for path, content in made.env.files.items()}
    with pytest.raises(LogError, match=error):
        made.machine.open()
    assert {path: bytes(content.seen) for path, content in made.env.files.items()} == before


def test_an_order_that_does_not_verify_is_refused(form):
    made = Diverged(form)
    made.order()
    made.machine.damage("/slave/truncate", 12, b"\xff")
    with pytest.raises(CorruptionError, match="does not verify"):
        made.machine.open()


def test_without_room_for_what_is_taken_off_the_start_is_refused_and_a_later_one_goes_on(form):
    made = Diverged(form)
    made.order()
    made.env.fail("create", errno.ENOSPC)
    with pytest.raises(DiskFullError, match="no room for what the truncation takes off"):
        made.machine.open()
    made.env.heal()
    made.machine.open()
    made.assert_truncated()


@pytest.mark.parametrize("operation", ["read", "write", "sync", "rename", "unlink", "truncate"])
def test_after_an_error_of_the_device_a_later_start_goes_on(form, operation):
    made = Diverged(form)
    made.order()
    made.env.fail(operation, errno.EIO)
    with pytest.raises((OSError, LogError, ProcessEnded)):
        made.machine.open()
    made.env.end_process()
    made.machine.open()
    made.assert_truncated()
