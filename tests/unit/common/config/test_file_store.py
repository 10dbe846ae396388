"""What only the file store can get wrong: crashes between its files, permissions, the poll."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from common.admin import upkeep
from common.admin.administrator import Administrator
from common.config import buckets as layout
from common.config import files
from common.config.definitions import Fence
from common.config.ended_fences import end_fence, topic_in
from common.config.errors import AccessDenied, StoreDamaged, StoreUnavailable
from common.config.file_store import FileStore
from common.config.opening import open_store
from common.config.view import ConfigView
from tests.waiting import until

OTHER_USER, GROUP = 65534, 54321


@pytest.fixture
def store(tmp_path):
    opened = FileStore(tmp_path / "config")
    yield opened
    opened.close()


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", ["write_synced", "sync_directory", "replace"])
def test_a_crash_before_the_index_is_replaced_changes_nothing(store, monkeypatch, step):
    version = store.put("topic", "orders", {"queues": 1}, 0)

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(files, step, crash)
        store.put("topic", "orders", {"queues": 2}, version)
    assert store.get("topic", "orders") == ({"queues": 1}, version)
    assert store.put("topic", "orders", {"queues": 3}, version) > version


@pytest.mark.parametrize("call", ["open", "fsync", "rename"])
@pytest.mark.parametrize("nth", range(6))
def test_a_write_that_the_disk_refuses_changes_nothing_and_can_be_repeated(store, monkeypatch, call, nth):
    version = store.put("topic", "orders", {"queues": 1}, 0)
    real, calls = getattr(os, call), iter(range(100))

    def fail(*arguments, **named):
        if next(calls) == nth:
            raise OSError(errno.EIO, "Input/output error")
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        try:
            version = store.put("topic", "orders", {"queues": 2}, version)
        except StoreUnavailable as error:
            assert "None" not in str(error)
    found, version_now = store.get("topic", "orders")
    assert found["queues"] in (1, 2) and version_now >= version
    store.put("topic", "orders", {"queues": 3}, version_now)
    assert store.get("topic", "orders")[0] == {"queues": 3}
    assert upkeep.verify(store) == []


def test_a_check_of_the_store_finds_nothing_while_others_write(store, tmp_path):
    writer, done = FileStore(tmp_path / "config"), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            writer.put("engine", f"e{number}", {}, 0)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            assert [
                each for each in upkeep.verify(store) if "revision" in each.problem or each.subject == "engine"
            ] == []
    finally:
        done.set()
        thread.join(10)
        writer.close()


def test_a_bucket_that_is_replaced_while_it_is_read_is_no_fault_however_often(store, monkeypatch):
    version, found_buckets = store.put("engine", "e", {}, 0), store.found_buckets

    def replaced_meanwhile(kind):
        nonlocal version
        found = found_buckets(kind)
        if kind != "engine":
            return found
        version = store.put("engine", "e", {}, version)
        return {}

    monkeypatch.setattr(store, "found_buckets", replaced_meanwhile)
    assert upkeep.verify(store) == []


@pytest.mark.parametrize("begun", [b"", b"half"])
def test_a_file_that_a_writer_has_begun_is_no_fault_and_a_repair_does_not_take_it(store, tmp_path, begun):
    store.put("topic", "orders", {"queues": 2}, 0)
    number = layout.bucket_of("orders", 256)
    (tmp_path / f"config/topic/{number:03d}.2").write_bytes(begun)
    assert upkeep.verify(store) == []
    (tmp_path / "config/topic/index").write_bytes(b"damaged")
    upkeep.repair(Administrator(store, "test"))
    assert store.get("topic", "orders")[0] == {"queues": 2}


def test_what_a_crashed_writer_left_is_swept_by_the_next_one(store, tmp_path):
    version = store.put("topic", "orders", {}, 0)
    number = layout.bucket_of("orders", 256)
    (tmp_path / "config/topic" / f"{number:03d}.77").write_bytes(b"half")
    store.put("topic", "orders", {"queues": 2}, version)
    assert sorted(os.listdir(tmp_path / "config/topic")) == [f"{number:03d}.2", "index"]


def test_a_torn_index_is_named_and_not_taken_for_an_empty_store(store, tmp_path):
    store.put("topic", "orders", {}, 0)
    (tmp_path / "config/topic/index").write_bytes(b"")
    with pytest.raises(StoreDamaged, match="topic/index"):
        store.get("topic", "orders")


def test_a_damaged_bucket_is_named(store, tmp_path):
    store.put("topic", "orders", {}, 0)
    [path] = [path for path in (tmp_path / "config/topic").iterdir() if path.name != "index"]
    path.write_bytes(path.read_bytes()[:-3])
    other = FileStore(tmp_path / "config")
    with pytest.raises(StoreDamaged, match="topic bucket"):
        other.get("topic", "orders")


def test_files_and_directories_are_for_their_owner_only(store, tmp_path):
    store.put("application", "shop", {}, 0)
    for path in (tmp_path / "config").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_directory_that_vanished_is_unavailable_not_empty(store, tmp_path):
    store.put("topic", "orders", {}, 0)
    (tmp_path / "config").rename(tmp_path / "elsewhere")
    assert store.unavailable_since_ms
    with pytest.raises(StoreUnavailable):
        store.get("topic", "orders")


def test_a_directory_that_came_back_is_told_to_the_watchers(store, tmp_path):
    store.put("topic", "orders", {}, 0)
    heard = []
    store.watch(heard.append)
    until(lambda: "setting" in heard, "the first round")
    (tmp_path / "config").rename(tmp_path / "elsewhere")
    until(lambda: store._away_since_ms, "the loss to be noticed")
    heard.clear()
    (tmp_path / "elsewhere").rename(tmp_path / "config")
    until(lambda: "topic" in heard, "the news of the return")


def test_a_process_reports_again_in_a_directory_that_has_lost_its_reports(store, tmp_path):
    store.report_applied("proxy", {"topic": 1})
    for each in (tmp_path / "config" / "applied").iterdir():
        each.unlink()
    assert store.applied() == {}
    store.report_applied("proxy", {"topic": 2})
    assert store.applied()["proxy"].version == {"topic": 2}


def test_the_report_of_a_killed_process_goes_with_it(store, tmp_path):
    code = (
        "import sys; from common.config.file_store import FileStore; FileStore(sys.argv[1]).report_applied('proxy', {'topic': 1});"
        "print('up', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "config")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"up\n"
    assert store.applied()["proxy"].pid == child.pid
    child.kill()
    child.communicate()
    assert store.applied() == {}


def test_it_co_operates_with_gevent(tmp_path):
    code = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from common.config import ConfigView, open_store
store, writer = open_store(sys.argv[1]), open_store(sys.argv[1])
view = ConfigView(store, sys.argv[2])
turns = []
def spin():
    while True:
        turns.append(1); gevent.sleep(0.001)
spinner = gevent.spawn(spin)
writer.put('topic', 'orders', {}, 0)
with gevent.Timeout(5):
    while view.topic('orders') is None:
        gevent.sleep(0.01)
assert len(turns) > 3
view.close(); store.close(); writer.close()
"""
    url = f"file://{tmp_path}/config"
    subprocess.run([sys.executable, "-c", code, url, str(tmp_path / "snapshot")], check=True, timeout=30)
    assert open_store(url).names("topic") == ["orders"]


@pytest.mark.parametrize("failing", range(7))
def test_a_full_disk_at_any_step_of_a_write_leaves_the_old_state_and_no_file(tmp_path, monkeypatch, failing):
    store = FileStore(tmp_path)
    store.put("topic", "a", {"queues": 1}, 0)
    before, synced, real = files_of(tmp_path), [], os.fsync

    def fsync(fd):
        synced.append(fd)
        if len(synced) == failing + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    try:
        store.put("topic", "a", {"queues": 2}, 1)
    except StoreUnavailable as error:
        told = str(error)
    else:
        told = ""
    monkeypatch.undo()
    if told.endswith("disk full: nothing was changed: free some space and try again"):
        assert store.get("topic", "a").value == {"queues": 1} and files_of(tmp_path) == before
    else:
        assert store.get("topic", "a").value == {"queues": 2}, told
    store.put("topic", "a", {"queues": 3}, store.get("topic", "a").version)
    assert store.get("topic", "a").value == {"queues": 3}


def files_of(root):
    return {path: path.read_bytes() for path in (root / "topic").iterdir()}


def as_other_user(group: int, act) -> None:
    """Run `act` in a process of another user, in that group."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([group])
            os.setgid(group)
            os.setuid(OTHER_USER)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def shared_directory():
    """A store whose group may read it and write what proxies write. As root only."""
    if os.getuid():
        pytest.skip("needs root, for a second user")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "config"
        FileStore(root).close()
        for path in (Path(folder), root, *root.iterdir()):
            os.chown(path, -1, GROUP)
            path.chmod(0o2770 if path.name in ("applied", "claims", "journal", "ended_fence") else 0o2750)
        yield root


def test_a_user_of_the_directorys_group_reads_reports_and_ends_fences_and_changes_nothing_else(shared_directory):
    before = os.umask(0o077)
    try:
        with closing(FileStore(shared_directory)) as store:
            fence = Fence("shop", "shop.1", 1_000)
            store.put("topic", "orders", {"fence": fence.to_value()}, 0)
            store.report_applied("engine", {"topic": 1})

            def proxy():
                reader = FileStore(shared_directory)
                with closing(ConfigView(reader, process="producer_proxy")) as view:
                    assert view.topic("orders").fence == fence and set(reader.applied()) == {"engine", "producer_proxy"}
                    reader.put("journal", "own", {"a": 1}, 0)
                    assert reader.claim("slot/0", by_proxy=True)
                    end_fence(reader, "orders", fence)
                    for kind in ("topic", "application", "setting"):
                        with pytest.raises(AccessDenied, match="permission denied"):
                            reader.put(kind, "evil", {}, 0)
                    with pytest.raises(AccessDenied):
                        reader.delete("topic", "orders", reader.get("topic", "orders").version)

            as_other_user(GROUP, proxy)
            assert topic_in(store, "orders").fence is None and store.get("journal", "own").value == {"a": 1}
            store.put("journal", "own", {"a": 2}, store.get("journal", "own").version)
            store.put("topic", "bills", {}, 0)
            as_other_user(GROUP, lambda: FileStore(shared_directory).get("topic", "bills").version)
            assert set(store.applied()) == {"engine"}
    finally:
        os.umask(before)


def test_files_of_a_store_for_its_owner_alone_stay_so(tmp_path):
    with closing(FileStore(tmp_path / "config")) as store:
        store.put("topic", "orders", {}, 0)
        store.report_applied("engine", {"topic": 1})
        store.claim("slot/0")
        files = [path for path in (tmp_path / "config").rglob("*") if path.is_file()]
        assert len(files) >= 5 and {path.stat().st_mode & 0o777 for path in files} == {0o600}
