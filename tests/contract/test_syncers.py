"""Group commit: the same cases with the thread, in both forms, and with its stand-in for simulations."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest

from engine.env import sync_worker as module
from engine.env.real import RealEnv, RealFile
from engine.env.sync import SyncThread as ReferenceThread
from engine.log.write.syncer import InlineSyncer, Syncer, ThreadSyncer

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "engine" / "log"))

from forms import forms, load
from machine import NOW, Machine


class Ended(BaseException):
    """The process would have ended."""


class MortalEnv(RealEnv):
    """Notes the reason of its end; the loop shows no exception of a watcher's callback to the test."""

    def __init__(self) -> None:
        self.death = ""

    def die(self, reason: str) -> None:
        self.death = reason
        raise Ended(reason)


class Bench:
    """A syncer on real files. `left`: the full files that no job has synced."""

    def __init__(self, make: Callable, folder: Path) -> None:
        self.env, self.left, self._folder = MortalEnv(), [], folder
        self.syncer: Syncer = make(self.env, lambda: self.left)
        self.done: list[int] = []

    def file(self, name: str) -> RealFile:
        return self.env.open(str(self._folder / name), create=True)

    def unsyncable(self) -> RealFile:
        """A file whose sync fails: fdatasync refuses pipes."""
        reader, writer = os.pipe()
        os.close(reader)
        return RealFile("full", writer)

    def wait(self, position: int, end_position: int) -> None:
        self.syncer.when_durable(position, end_position, lambda: self.done.append(position))

    def settle(self, condition: Callable[[], object]) -> None:
        with gevent.Timeout(5):
            while not condition():
                gevent.sleep(0.001)


def thread_syncer(env: RealEnv, unsynced: Callable) -> ThreadSyncer:
    return ThreadSyncer(env, unsynced, env.sync_worker)


@pytest.fixture(params=["inline", *forms()])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A syncer that is durable up to 100 of its file."""
    if request.param == "twin":
        monkeypatch.setattr(module, "SyncThread", ReferenceThread)
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda *_: None)
    made = Bench(InlineSyncer if request.param == "inline" else thread_syncer, tmp_path)
    made.syncer.switch(made.file("first"), 0)
    made.syncer.advance(100)
    yield made
    made.syncer.close()


def test_what_is_durable_calls_back_at_once_and_makes_nothing_else_durable(bench):
    bench.wait(50, 200)
    assert bench.done == [50]
    assert bench.syncer.durable_position == 100


def test_one_sync_covers_everything_up_to_the_end(bench):
    bench.wait(150, 300)
    bench.settle(lambda: bench.done)
    assert bench.done == [150]
    assert bench.syncer.durable_position == 300


def test_callbacks_come_in_the_order_of_their_positions(bench):
    bench.syncer._enqueue(180, lambda: bench.done.append(180))
    bench.wait(150, 300)
    bench.wait(200, 300)
    bench.settle(lambda: len(bench.done) == 3)
    assert bench.done == [150, 180, 200]


def test_a_callback_that_fails_holds_up_no_other(bench):
    def fail() -> None:
        raise RuntimeError("a fault of the program")

    bench.syncer._enqueue(120, fail)
    bench.wait(150, 300)
    bench.settle(lambda: bench.done)


def test_the_first_wait_syncs_a_full_file_that_was_left_before_it(bench):
    bench.left.append(bench.unsyncable())
    bench.syncer.switch(bench.file("second"), 200)
    try:
        bench.wait(250, 300)
        bench.settle(lambda: bench.env.death)
    except Ended:
        pass
    assert "fdatasync failed" in bench.env.death
    assert bench.done == []


def test_a_later_wait_syncs_a_full_file_that_was_left_since(bench):
    bench.wait(150, 150)
    bench.settle(lambda: bench.done)
    full = bench.unsyncable()
    bench.syncer.switch(full, 150)
    bench.left.append(full)
    bench.syncer.switch(bench.file("third"), 400)
    try:
        bench.wait(450, 500)
        bench.settle(lambda: bench.env.death)
    except Ended:
        pass
    assert "fdatasync failed" in bench.env.death
    assert bench.done == [150]


def test_without_a_descriptor_for_the_thread_the_caller_syncs(bench, monkeypatch):
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "SyncThread", refuse)
    bench.wait(150, 300)
    assert bench.done == [150]
    assert bench.syncer.durable_position == 300


@pytest.mark.parametrize("form", forms())
def test_the_first_wait_of_a_log_covers_the_segments_that_are_being_sealed(form, tmp_path):
    machine = Machine(load(form), RealEnv(), str(tmp_path))
    writer, log = machine.log.writer, machine.log
    first = log.segments.active
    writer._jobs._sealer._background.submit = lambda task: None  # sealing has not come to anything yet
    while log.segments.active is first:
        log.append(machine.batch(1, 0, [b"x" * 1000]), 1, NOW)
    left = []
    writer._syncer._leave_behind = lambda worker, file: left.append(file)
    writer.durability.when_durable(log.end_position, lambda: None)
    assert left == [first.file]
    del writer._jobs._sealer._background.submit
    machine.close()
