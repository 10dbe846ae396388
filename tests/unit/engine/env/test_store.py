"""The store in RocksDB after an error of the device."""

import resource
import threading

import pytest

from engine.env.store import RocksStore


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
