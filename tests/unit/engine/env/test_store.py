"""The store in RocksDB after an error of the device."""

import resource
import subprocess
import sys
import threading

import pytest

from engine.env.store import RocksStore
from engine.errors import StoreDamagedError
from engine.log.offline.readonly import ReadOnlyStore


@pytest.fixture
def no_writes():
    """A function that makes every write to a file fail in this process (EFBIG), or work again."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def switch(is_failing: bool) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0 if is_failing else before[0], before[1]))

    yield switch
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def store(tmp_path):
    made = RocksStore(str(tmp_path / "state"), 1 << 20)
    made.write([(b"old", b"1"), (b"gone", b"1")])
    made.flush()
    yield made
    made.close()


def test_a_store_whose_flush_failed_takes_writes_again_and_keeps_all(store, tmp_path, no_writes):
    store.write([(b"a", b"1"), (b"b", b"1")], [b"gone"])
    no_writes(True)
    for _ in range(2):
        with pytest.raises(OSError):
            store.flush()
    with pytest.raises(OSError):
        store.write([(b"refused", b"1")])
    assert store.get(b"old") == b"1"  # reads go on meanwhile
    no_writes(False)
    store.write([(b"b", b"2")])
    store.flush()
    store.close()
    again = RocksStore(str(tmp_path / "state"), 1 << 20)
    assert list(again.scan(b"", b"z")) == [(b"a", b"1"), (b"b", b"2"), (b"old", b"1")]
    again.close()


def test_a_reader_in_another_thread_waits_while_the_store_is_opened_again(store, no_writes):
    found, done = [], threading.Event()

    def read() -> None:
        while not done.is_set():
            found.append((store.get(b"old"), list(store.scan(b"o", b"p"))))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(5):
            no_writes(True)
            with pytest.raises(OSError):
                store.write([(b"a", b"%d" % number)])
                store.flush()
            no_writes(False)
            store.write([(b"a", b"%d" % number)])
            store.flush()
    finally:
        done.set()
        reader.join(10)
    assert set(map(str, found)) == {str((b"1", [(b"old", b"1")]))}


READ_IN_A_CALLBACK = """
from gevent import monkey
monkey.patch_all()
import sys, gevent
from common.unpatched import original
from engine.env.store import RocksStore
from engine.errors import StoreDamagedError
from engine.log.offline.readonly import ReadOnlyStore

def open_again():
    with store._lock:
        database, store._database = store._database, None
        closed.release()
        original("time", "sleep")(0.1)
        store._database = database

store = RocksStore(sys.argv[1], 1 << 20)
store.write([(b"a", b"found")])
closed = original("_thread", "allocate_lock")()
closed.acquire()
original("_thread", "start_new_thread")(open_again, ())
closed.acquire()
gevent.get_hub().loop.run_callback(lambda: print(store.get(b"a").decode()))
gevent.sleep(0)
"""


def test_a_callback_of_the_loop_waits_while_a_thread_opens_the_store_again(tmp_path):
    child = [sys.executable, "-c", READ_IN_A_CALLBACK, str(tmp_path / "state")]
    done = subprocess.run(child, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("found\n", "")


@pytest.mark.parametrize(
    "opened", ["env.store import RocksStore", "log.offline.readonly import ReadOnlyStore as RocksStore"]
)
def test_a_flipped_bit_in_the_options_file_neither_crashes_nor_refuses_a_start(store, tmp_path, opened):
    """In a process of its own: RocksDB crashes when it reads such a file."""
    store.close()
    for path in (tmp_path / "state").glob("OPTIONS-*"):
        path.write_bytes(path.read_bytes().replace(b"BlockBasedTable", b"BlockBaseeTable"))
    arguments = "sys.argv[1], 1 << 20" if "env" in opened else "sys.argv[1]"
    program = f"import sys; from engine.{opened}; print(RocksStore({arguments}).get(b'old'))"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "state")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "b'1'\n"), done.stderr


def test_a_flipped_bit_in_current_is_damage_of_the_store_and_no_error_of_the_device(store, tmp_path):
    """Some of these bits name a MANIFEST that does not exist."""
    store.close()
    current = tmp_path / "state" / "CURRENT"
    good = current.read_bytes()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        current.write_bytes(bad)
        with pytest.raises(StoreDamagedError):
            RocksStore(str(tmp_path / "state"), 1 << 20)


@pytest.mark.parametrize("kind", ["MANIFEST-*", "*.sst"])
def test_a_lost_file_of_the_store_is_damage_and_no_error_of_the_device(store, tmp_path, kind):
    store.close()
    for path in (tmp_path / "state").glob(kind):
        path.unlink()
    with pytest.raises(StoreDamagedError):
        RocksStore(str(tmp_path / "state"), 1 << 20).get(b"old")


def test_a_folder_that_is_missing_is_no_damage_to_a_tool_that_only_reads(tmp_path):
    with pytest.raises(OSError):
        ReadOnlyStore(str(tmp_path / "state"))
