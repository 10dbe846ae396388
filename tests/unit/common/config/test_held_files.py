"""Files that are held by their process: seen while it runs, gone after it, and never taken from a new holder."""

import os

from common.config.held_files import hold, read_held


def test_a_held_file_is_read_by_others_and_ends_with_its_holder(tmp_path):
    path = tmp_path / "one"
    fd = hold(path)
    os.pwrite(fd, b"text", 0)
    assert read_held(path, 100) == b"text" and hold(path) is None
    os.close(fd)
    assert read_held(path, 100) is None and not path.exists()


def test_a_file_that_was_never_written_is_empty_and_a_missing_one_is_none(tmp_path):
    fd = hold(tmp_path / "one")
    assert read_held(tmp_path / "one", 100) == b"" and read_held(tmp_path / "two", 100) is None
    os.close(fd)


def test_a_reader_of_an_ended_holder_does_not_remove_the_file_of_the_next_one(tmp_path, monkeypatch):
    """Two readers open the old file; the first removes it, a new process holds the name, then the second goes on."""
    path = tmp_path / "one"
    os.close(hold(path))
    taken = []

    def open_then_lose_the_race(*arguments: object, real=os.open) -> int:
        fd = real(*arguments)
        monkeypatch.setattr(os, "open", real)
        assert read_held(path, 100) is None
        taken.append(hold(path))
        return fd

    monkeypatch.setattr(os, "open", open_then_lose_the_race)
    assert read_held(path, 100) is None
    assert read_held(path, 100) == b"" and taken[0] is not None
    os.close(taken[0])
