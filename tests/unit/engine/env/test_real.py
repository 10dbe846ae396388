"""The page cache as the machine's files report it."""

import os

import pytest

from engine.env.real import RealEnv, cached_pages

MIB = 1 << 20


@pytest.fixture
def dropped(tmp_path):
    """A file of 2 MiB of which the page cache has nothing."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2 * MIB))
    file = RealEnv().open(str(path))
    os.fsync(file._fd)
    file.forget(0, 2 * MIB)
    if cached_pages(file._fd, 2 * MIB, 0) != 0:
        pytest.skip("cachestat needs Linux 6.5 and a file system on a disk")
    yield file
    file.close()


def test_asking_what_is_in_memory_has_nothing_fetched(dropped):
    assert not dropped.in_memory(MIB, 0)
    assert cached_pages(dropped._fd, 2 * MIB, 0) == 0


def test_what_was_fetched_is_in_memory_all_of_it(dropped):
    dropped.fetch(MIB, 0)
    assert cached_pages(dropped._fd, MIB, 0) == MIB // os.sysconf("SC_PAGESIZE")
    assert dropped.in_memory(MIB, 0)
    assert not dropped.in_memory(2 * MIB, 0)


def test_what_lies_behind_the_end_of_a_file_needs_no_disk(dropped):
    dropped.fetch(MIB, MIB + 5)
    assert dropped.in_memory(MIB, MIB + 5)
    dropped.fetch(MIB, 3 * MIB)
    assert dropped.in_memory(MIB, 3 * MIB)
