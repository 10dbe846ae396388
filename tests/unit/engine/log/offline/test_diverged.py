"""Folders with what replication has taken out of a log."""

import os

import pytest

from engine.log.offline.directory import NoLogError
from engine.log.offline.diverged import diverged_folders, remove_diverged


@pytest.fixture
def directory(tmp_path):
    for number, (name, sizes) in enumerate(
        {"3-4096": (10, 20), "renewed-1": (5,), "damaged": (), "other": (7,)}.items()
    ):
        log = tmp_path / "diverged" / name / "log"
        log.mkdir(parents=True)
        for place, size in enumerate(sizes):
            (log / f"{place:020d}.seg").write_bytes(bytes(size))
            os.utime(log / f"{place:020d}.seg", (2_000_000_000 + number,) * 2)
    return tmp_path


def test_they_are_listed_with_their_sizes_the_oldest_first(directory):
    found = diverged_folders(directory)
    told = {each.name: (each.kind, each.segments, each.bytes) for each in found}
    assert told == {"damaged": ("damaged", 0, 0), "3-4096": ("truncated", 2, 30), "renewed-1": ("renewed", 1, 5)}
    assert [each.name for each in found] == ["damaged", "3-4096", "renewed-1"]
    assert found[1].at_ms == 2_000_000_000_000


def test_a_directory_without_them_has_none(tmp_path):
    assert diverged_folders(tmp_path) == []


def test_one_is_removed_and_nothing_else_by_a_name(directory):
    assert remove_diverged(directory, "3-4096").bytes == 30
    assert [each.name for each in diverged_folders(directory)] == ["damaged", "renewed-1"]
    for name in ("3-4096", "other", "..", "../log", ""):
        with pytest.raises(NoLogError, match="has no folder"):
            remove_diverged(directory, name)
    assert (directory / "diverged" / "other").is_dir()
