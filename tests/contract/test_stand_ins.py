"""What the machine and its stand-ins do alike: files, the sorted store, background tasks, the sync worker.

A simulation shows only what its stand-ins do. So each promise that the engine relies on is tested on both of a pair.
"""

import errno
import os
from collections import deque

import gevent
import pytest

from engine.env.background import InlineBackground, ThreadBackground
from engine.env.real import RealEnv, RealFile
from engine.env.simulated import PowerCut, SimulatedEnv
from engine.env.simulated_threads import SimulatedBackground, SimulatedSyncWorker
from engine.env.store import MemoryStore, RocksStore
from engine.env.sync_worker import ThreadSyncWorker


class VirtualTime:
    """Steps of simulated threads, which run when the test says so."""

    def __init__(self) -> None:
        self.steps: deque = deque()

    def later(self, kind: str, step) -> None:
        self.steps.append(step)

    def run(self) -> None:
        while self.steps:
            self.steps.popleft()()


# -- files


@pytest.fixture(params=["simulated", "real"])
def machine(request, tmp_path):
    """(environment, directory)."""
    if request.param == "simulated":
        return SimulatedEnv(), "/data"
    return RealEnv(), str(tmp_path)


def test_bytes_are_read_where_they_were_written_and_a_gap_is_zero(machine):
    env, directory = machine
    file = env.open(f"{directory}/a", create=True)
    assert file.write_at(b"abc", 5) == 3
    assert file.write_at(memoryview(b"XY"), 1) == 2
    assert (file.read_at(100, 0), file.read_at(2, 6), file.read_at(5, 8)) == (b"\0XY\0\0abc", b"bc", b"")
    assert (file.size(), env.size(f"{directory}/a"), bytes(file.view())) == (8, 8, b"\0XY\0\0abc")
    file.fetch(100, 0)
    file.sync()
    file.close()
    file.close()
    assert env.open(f"{directory}/a").read_at(3, 5) == b"abc"


def test_a_created_file_is_empty_and_a_missing_one_is_refused(machine):
    env, directory = machine
    env.open(f"{directory}/a", create=True).write_at(b"old", 0)
    assert env.open(f"{directory}/a", create=True).size() == 0
    with pytest.raises(FileNotFoundError):
        env.open(f"{directory}/b")
    assert (env.exists(f"{directory}/a"), env.exists(f"{directory}/b"), env.size(f"{directory}/b")) == (True, False, 0)


def test_allocating_never_shrinks_and_truncating_does(machine):
    env, directory = machine
    file = env.open(f"{directory}/a", create=True)
    file.allocate(8192)
    file.write_at(b"x", 100)
    file.allocate(4096)
    assert file.size() == 8192
    assert file.read_at(2, 100) == b"x\0"
    file.truncate(50)
    file.allocate(4096)
    assert file.size() == 4096
    assert file.read_at(2, 100) == b"\0\0"


def test_data_is_found_behind_a_hole_at_its_place_or_before(machine):
    env, directory = machine
    file = env.open(f"{directory}/a", create=True)
    file.truncate(1 << 20)
    assert file.next_data(0) is None
    file.write_at(b"x", 600_000)
    found = file.next_data(0)
    assert found is not None and found <= 600_000 and file.read_at(600_000 - found, found).strip(b"\0") == b""


def test_names_are_listed_sorted_renamed_over_others_and_unlinked_twice(machine):
    env, directory = machine
    for name in ("b", "c", "a"):
        env.open(f"{directory}/{name}", create=True).write_at(name.encode(), 0)
    env.rename(f"{directory}/a", f"{directory}/c")
    env.unlink(f"{directory}/b")
    env.unlink(f"{directory}/b")
    env.sync_directory(directory)
    assert env.list(directory) == ["c"]
    assert env.open(f"{directory}/c").read_at(9, 0) == b"a"
    assert env.list(f"{directory}/missing") == []


def test_an_open_file_outlives_its_name(machine):
    env, directory = machine
    file = env.open(f"{directory}/a", create=True)
    file.write_at(b"here", 0)
    env.unlink(f"{directory}/a")
    assert file.read_at(9, 0) == b"here"


# -- the sorted store


@pytest.fixture(params=["memory", "simulated", "rocks"])
def store(request, tmp_path):
    """(store, a function that opens it again after it was closed)."""
    disk: dict[bytes, bytes] = {}
    env = SimulatedEnv()
    makers = {
        "memory": lambda: MemoryStore(disk),
        "simulated": lambda: env.open_store("/state", 0),
        "rocks": lambda: RocksStore(str(tmp_path / "state"), 1 << 20),
    }
    return makers[request.param](), makers[request.param]


def test_a_store_finds_the_latest_value_the_key_before_and_a_range_in_order(store):
    made, _ = store
    made.write([(b"b", b"1"), (b"a", b"2"), (b"d", b"3")])
    made.write([(b"b", b"4"), (b"e", b"")], [b"d", b"missing"])
    assert [made.get(key) for key in (b"a", b"b", b"d", b"e")] == [b"2", b"4", None, b""]
    found = [made.last_at_or_before(key) for key in (b"Z", b"a", b"c", b"z")]
    assert found == [None, (b"a", b"2"), (b"b", b"4"), (b"e", b"")]
    assert list(made.scan(b"a", b"e")) == [(b"a", b"2"), (b"b", b"4")]
    assert list(made.scan(b"x", b"y")) == []
    made.close()


def test_what_a_store_has_flushed_is_there_when_it_is_opened_again(store):
    made, again = store
    made.write([(b"a", b"1"), (b"b", b"2")])
    made.write([], [b"a"])
    made.flush()
    made.close()
    opened = again()
    assert (opened.get(b"a"), opened.get(b"b")) == (None, b"2")
    opened.close()


# -- background tasks


@pytest.fixture(params=["inline", "simulated", "thread"])
def background(request):
    """(background, a function that lets submitted tasks run, reasons of ends of the process)."""
    ends: list[str] = []
    time = VirtualTime()
    made = {
        "inline": lambda: InlineBackground(ends.append),
        "simulated": lambda: SimulatedBackground(time.later, ends.append),
        "thread": lambda: ThreadBackground(ends.append),
    }[request.param]()
    return made, ends


def test_tasks_run_once_each_in_order_before_drain_and_stop_return(background):
    made, _ = background
    ran: list[int] = []
    for number in range(20):
        made.submit(lambda number=number: ran.append(number))
    made.drain()
    assert ran == list(range(20))
    made.submit(lambda: ran.append(20))
    made.stop()
    assert ran == list(range(21))


def test_a_task_may_submit_another(background):
    made, _ = background
    ran: list[str] = []
    made.submit(lambda: (ran.append("first"), made.submit(lambda: ran.append("second"))))
    made.drain()
    made.drain()
    assert ran == ["first", "second"]


def test_an_error_in_a_task_ends_the_process(background):
    made, ends = background
    made.submit(lambda: 1 / 0)
    made.drain()
    assert len(ends) == 1 and "ZeroDivisionError" in ends[0]


def test_simulated_tasks_wait_for_their_time_one_per_step():
    time, ran = VirtualTime(), []
    made = SimulatedBackground(time.later, ran.append)
    made.submit(lambda: ran.append(1))
    made.submit(lambda: ran.append(2))
    assert ran == [] and len(time.steps) == 1
    time.steps.popleft()()
    assert ran == [1] and len(time.steps) == 1


# -- the sync worker


class Syncing:
    """A worker, files of its machine, and the positions that it has reported."""

    def __init__(self, kind: str, directory) -> None:
        self.time, self.reports = VirtualTime(), []
        self.is_real = kind == "thread"
        self.env = RealEnv() if self.is_real else SimulatedEnv()
        self.directory = str(directory)
        self.worker = (
            ThreadSyncWorker(self._on_done) if self.is_real else SimulatedSyncWorker(self.time.later, self._on_done)
        )

    def _on_done(self) -> None:
        self.reports.append(self.worker.collect())

    def file(self, name: str):
        file = self.env.open(f"{self.directory}/{name}", create=True)
        file.write_at(name.encode(), 0)
        return file

    def until(self, position: int) -> None:
        """Let it work until that position, or an error, is reported."""
        with gevent.Timeout(10):
            while not any(done >= position or error for done, error in self.reports):
                self.time.run()
                gevent.sleep(0.001)


@pytest.fixture(params=["simulated", "thread"])
def syncing(request, tmp_path):
    made = Syncing(request.param, tmp_path)
    yield made
    made.worker.stop()


def test_a_request_returns_before_the_sync_and_reports_its_position(syncing):
    syncing.worker.request(syncing.file("a"), 100)
    assert syncing.reports == []
    syncing.until(100)
    assert syncing.reports[-1] == (100, 0)


def test_requests_during_a_sync_become_one_more_for_the_last_of_them(syncing):
    file = syncing.file("a")
    for position in (100, 200, 300):
        syncing.worker.request(file, position)
    syncing.until(300)
    assert syncing.reports[-1] == (300, 0)
    assert len(syncing.reports) <= 3
    assert [done for done, _ in syncing.reports] == sorted(done for done, _ in syncing.reports)


def test_files_left_behind_are_synced_although_they_were_closed(syncing):
    left = syncing.file("left")
    assert syncing.worker.leave_behind(left)
    left.close()
    syncing.worker.request(syncing.file("now"), 50)
    syncing.until(50)
    assert syncing.reports[-1] == (50, 0)
    if not syncing.is_real:
        assert left.content.durable == b"left"


def test_a_failed_sync_is_reported_and_nothing_is_synced_after_it(syncing):
    if syncing.is_real:
        reading, _ = os.pipe()
        syncing.worker.request(RealFile("pipe", reading), 10)  # a pipe cannot be synced
    else:
        syncing.env.fail("sync", errno.EINVAL)
        syncing.worker.request(syncing.file("a"), 10)
    syncing.until(10)
    assert syncing.reports[-1] == (0, errno.EINVAL)
    syncing.env = SimulatedEnv()
    before = len(syncing.reports)
    syncing.time.run()
    assert len(syncing.reports) == before


def test_a_simulated_sync_covers_what_was_written_before_it_began():
    env, time = SimulatedEnv(), VirtualTime()
    worker = SimulatedSyncWorker(time.later, lambda: None)
    file = env.open("/a", create=True)
    file.write_at(b"early", 0)
    worker.request(file, 5)
    file.write_at(b"late", 5)
    time.run()
    assert file.content.durable == b"early"
    env.sync_directory("")
    env.crash()
    assert env.open("/a").read_at(9, 0) == b"early"


def test_a_simulated_failed_sync_drops_the_bytes_for_the_disk_and_not_for_readers():
    env = SimulatedEnv()
    file = env.open("/a", create=True)
    file.write_at(b"lost", 0)
    env.sync_directory("")
    env.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        file.sync()
    env.heal()
    file.sync()
    assert file.read_at(9, 0) == b"lost"
    env.crash()
    assert env.open("/a").read_at(9, 0) == b""


def test_a_simulated_clock_steps_for_the_wall_alone():
    env = SimulatedEnv()
    env.started_ms = env.clock_ms - 500
    before = env.clock.monotonic_ms()
    env.wall_shift_ms = -3_600_000
    assert (env.clock.monotonic_ms(), before) == (500, 500)
    assert env.now_ms() == env.clock_ms - 3_600_000


def test_every_simulated_call_can_fail_and_a_power_cut_comes_within_one():
    env = SimulatedEnv()
    seen: list[str] = []
    env.on_call = lambda operation, path, at, size: seen.append(operation)
    file = env.open("/d/a", create=True)
    file.write_at(b"x", 0)
    file.read_at(1, 0)
    file.view()
    file.sync()
    file.allocate(9)
    file.truncate(3)
    env.open("/d/a")
    env.rename("/d/a", "/d/b")
    env.unlink("/d/b")
    env.list("/d")
    env.disk("/d")
    store = env.open_store("/state", 0)
    store.write([(b"a", b"1")])
    store.get(b"a")
    assert seen == [
        "create", "write", "read", "view", "sync", "allocate", "truncate", "open", "rename", "unlink", "list", "disk",
        "store_open", "store", "store_read",
    ]  # fmt: skip
    env.power_cut_at = env.operations + 1
    with pytest.raises(PowerCut):
        store.flush()
