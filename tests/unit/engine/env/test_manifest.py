"""A MANIFEST of RocksDB with flipped bits: refused before RocksDB reads it, which may never come back from it."""

import subprocess
import sys

import pytest

from engine.env.manifest import HEADER
from engine.env.store import RocksStore, check_store
from engine.errors import StoreDamagedError

OPENING = """
import shutil, sys
from engine.errors import StoreDamagedError
from engine.env.store import RocksStore
folder, name, *bits = sys.argv[1:]
for bit in map(int, bits):
    copy = f"{folder}-{bit}"
    shutil.copytree(folder, copy)
    with open(f"{copy}/{name}", "r+b") as file:
        data = bytearray(file.read())
        data[bit // 8] ^= 1 << bit % 8
        file.seek(0)
        file.write(data)
    try:
        RocksStore(copy, 1 << 20).close()
    except (StoreDamagedError, OSError):
        pass
"""
"""In a process of its own, as it may never come back."""


@pytest.fixture
def folder(tmp_path):
    """A store of some flushes, so that its MANIFEST has some records."""
    path = tmp_path / "state"
    for number in range(5):
        store = RocksStore(str(path), 1 << 20)
        store.write([(b"key%d" % number, b"value")])
        store.flush()
        store.close()
    return path


@pytest.fixture
def manifest(folder):
    return folder / (folder / "CURRENT").read_text().strip()


def records(data: bytes) -> list[int]:
    """Where each begins; all lie in one block."""
    found, at = [], 0
    while at + HEADER.size <= len(data):
        found.append(at)
        at += HEADER.size + HEADER.unpack_from(data, at)[1]
    return found


def open_with(folder, manifest, bits: list[int]) -> None:
    """Open the store with one of the bits flipped, each in its turn; the process ends in time or the test fails."""
    command = [sys.executable, "-P", "-c", OPENING, str(folder), manifest.name, *map(str, bits)]
    subprocess.run(command, timeout=60, check=True)


def test_what_rocksdb_has_written_verifies(folder, manifest):
    assert len(records(manifest.read_bytes())) > 2
    check_store(str(folder))


def test_every_flipped_bit_is_found_or_makes_a_record_end_behind_the_file_which_rocksdb_answers(folder, manifest):
    good = manifest.read_bytes()
    lengths = {at + byte for at in records(good) for byte in (4, 5)}
    passed = []
    for number in range(len(good) * 8):
        bad = bytearray(good)
        bad[number // 8] ^= 1 << number % 8
        manifest.write_bytes(bad)
        try:
            check_store(str(folder))
        except StoreDamagedError:
            continue
        passed.append(number)
    manifest.write_bytes(good)
    assert {number // 8 for number in passed} <= lengths
    open_with(folder, manifest, passed)


def test_a_record_that_looks_like_one_of_a_recycled_file_does_not_keep_the_store_from_answering(folder, manifest):
    kind = records(manifest.read_bytes())[1] + 6
    assert manifest.read_bytes()[kind] == 1
    open_with(folder, manifest, [kind * 8 + 2])


def test_a_last_record_that_was_cut_off_is_left_to_rocksdb(folder, manifest):
    manifest.write_bytes(manifest.read_bytes()[:-3])
    check_store(str(folder))


def test_a_record_that_crosses_its_block_is_damage(folder, manifest):
    data = manifest.read_bytes().ljust(40_000, b"\0")
    at = len(manifest.read_bytes())
    manifest.write_bytes(data[:at] + HEADER.pack(1, 60_000, 1) + bytes(60_000))
    with pytest.raises(StoreDamagedError):
        check_store(str(folder))


def test_a_folder_without_a_manifest_is_left_to_rocksdb(tmp_path):
    check_store(str(tmp_path / "not there"))
    (tmp_path / "CURRENT").write_bytes(b"\xff\xfe")
    check_store(str(tmp_path))
