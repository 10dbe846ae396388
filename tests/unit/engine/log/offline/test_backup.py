"""Backups of a log beside its writer, and what is made of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.offline import backup
from engine.log.offline.backup import BackupError, back_up, check, read_manifest, restore
from engine.log.offline.directory import opened
from engine.log.offline.verify import verify

ROOT = Path(__file__).parents[5]


class Told:
    """Names of the files that were copied."""

    def __init__(self):
        self.copied = []

    def __call__(self, name, size):
        if size:
            self.copied.append(name)


@pytest.fixture
def told():
    return Told()


def damage_of(path):
    with opened(path) as directory:
        return verify(directory, lambda finding: None).damage


def test_a_backup_of_a_stopped_log_restores_to_the_same_segments(stopped, tmp_path, told):
    back_up(stopped.path, tmp_path / "backup", told)
    check(tmp_path / "backup", told)
    restore(tmp_path / "backup", tmp_path / "restored", told)
    for path in stopped.files(".seg"):
        assert (tmp_path / "restored" / "log" / path.name).read_bytes() == path.read_bytes()
    before, after = (
        open_log(RealEnv(), str(path), LogConfig(segment_bytes=1 << 16))
        for path in (stopped.path, tmp_path / "restored")
    )
    try:
        assert before.end_position == after.end_position
        assert [before.bounds(1, queue) for queue in range(4)] == [after.bounds(1, queue) for queue in range(4)]
        assert [*before.progress(b"")] == [*after.progress(b"")]
    finally:
        before.close(), after.close()


WRITER = """
import sys, time
from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import pack_batch, pack_record

log = open_log(RealEnv(), sys.argv[1], LogConfig(segment_bytes=1 << 18))
log.create_topics([("orders", 1)])
for number in range(200_000):
    log.append(pack_batch(0, 1, 0, [pack_record(b"%020d" % number * 40)]), 1, 1)
    if number == 2000:
        print("begun", flush=True)
    if number % 20 == 0:
        time.sleep(0.004)
"""


def test_backups_beside_a_writer_have_every_message_up_to_their_end(tmp_path, told):
    """Each one has what was stored before it began, without a hole, also when segments fill several times a second."""
    data = tmp_path / "data"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(data)], cwd=ROOT, stdout=subprocess.PIPE)
    ends = []
    try:
        assert writer.stdout.readline() == b"begun\n"
        for number in range(4):
            back_up(data, tmp_path / "backup", told)
            restore(tmp_path / "backup", tmp_path / f"restored-{number}", told)
            log = open_log(RealEnv(), str(tmp_path / f"restored-{number}"), LogConfig(segment_bytes=1 << 18))
            (first, end), found = log.bounds(1, 0), 0
            while (first + found) < end:
                pieces = log.read(1, 0, first + found, 1 << 20, 10_000)
                found += sum(piece.count for piece in pieces)
            assert (first, found) == (0, end), "messages lie without a gap from the first one on"
            log.close()
            assert damage_of(tmp_path / f"restored-{number}") == 0
            ends.append(end)
    finally:
        writer.kill()
        writer.wait()
    assert ends == sorted(ends) and ends[0] > 2000 and ends[-1] > ends[0]
    sealed = [name for name in told.copied if name == f"{0:020d}.seg"]
    assert len(sealed) <= 1 + 4, "copied once into the backup, and from it once per restore"


def test_of_what_is_appended_while_a_segment_is_copied_nothing_is_in_the_copy(tmp_path, monkeypatch):
    source, batch, size = tmp_path / "segment", b"b" * 100, backup.CHUNK_BYTES + 4096
    source.write_bytes(batch + bytes(size - len(batch)))
    written = backup._written

    def written_and_appended(path):
        end = written(path)
        with path.open("r+b") as file:
            file.seek(end)
            file.write(b"c" * (size - end))
        return end

    monkeypatch.setattr(backup, "_written", written_and_appended)
    made = backup._copy_of(source, tmp_path / "copy", is_written=True)
    assert (tmp_path / "copy").read_bytes() == batch + bytes(size - len(batch))
    assert (made.size, written(tmp_path / "copy")) == (size, len(batch))


def test_sealed_segments_are_copied_once_and_again_after_a_repair(stopped, tmp_path, told):
    back_up(stopped.path, tmp_path / "backup", told)
    told.copied.clear()
    back_up(stopped.path, tmp_path / "backup", told)
    sealed = {path.with_suffix(".seg").name for path in stopped.files(".idx")}
    assert sealed and not sealed & {*told.copied}
    path = stopped.files(".seg")[0]
    path.write_bytes(path.read_bytes())
    back_up(stopped.path, tmp_path / "backup", told)
    assert path.name in told.copied


def test_what_retention_deletes_leaves_the_backup_too(stopped, tmp_path, told):
    back_up(stopped.path, tmp_path / "backup", told)
    gone = stopped.files(".seg")[0]
    for path in (stopped.path / "log").glob(f"{gone.stem}*"):
        path.unlink()
    made = back_up(stopped.path, tmp_path / "backup", told)
    assert gone.name not in made.files and not (tmp_path / "backup" / "log" / gone.name).exists()
    check(tmp_path / "backup", told)


@pytest.mark.parametrize("step", range(1, 12))
def test_a_backup_that_ends_anywhere_leaves_one_that_is_whole(stopped, tmp_path, told, step, monkeypatch):
    """The directory has gone on since the first backup, and each call that changes a file is the last one once."""
    back_up(stopped.path, tmp_path / "backup", told)
    calls = 0

    def count(done):
        def call(*arguments):
            nonlocal calls
            calls += 1
            if calls == step:
                raise KeyboardInterrupt
            return done(*arguments)

        return call

    for name in ("rename", "unlink"):
        monkeypatch.setattr(Path, name, count(getattr(Path, name)))
    try:
        back_up(stopped.path, tmp_path / "backup", told)
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    back_up(stopped.path, tmp_path / "backup", told)
    check(tmp_path / "backup", told)


def test_a_backup_of_another_log_or_of_a_newer_state_is_not_overwritten(stopped, tmp_path, told):
    back_up(stopped.path, tmp_path / "backup", told)
    other = tmp_path / "other"
    open_log(RealEnv(), str(other), LogConfig(segment_bytes=1 << 16)).close()
    with pytest.raises(BackupError, match="is a backup of log"):
        back_up(other, tmp_path / "backup", told)
    for path in stopped.files(".seg")[1:]:
        path.unlink()
    with pytest.raises(BackupError, match="ends before the backup"):
        back_up(stopped.path, tmp_path / "backup", told)
    check(tmp_path / "backup", told)


@pytest.mark.parametrize("harm", ["changed", "shorter", "missing"])
def test_a_damaged_backup_is_named_and_not_restored(stopped, tmp_path, told, harm):
    back_up(stopped.path, tmp_path / "backup", told)
    path = sorted((tmp_path / "backup" / "log").glob("*.seg"))[1]
    data = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes(data[:99] + b"\xff" + data[100:] if harm == "changed" else data[:-1])
    with pytest.raises((BackupError, FileNotFoundError), match=path.name):
        check(tmp_path / "backup", told)
    with pytest.raises((BackupError, FileNotFoundError), match=path.name):
        restore(tmp_path / "backup", tmp_path / "restored", told)
    assert not (tmp_path / "restored" / "log").exists(), "no engine takes it for a log"


def test_a_directory_with_files_is_not_restored_into_and_one_without_a_backup_says_so(stopped, tmp_path, told):
    with pytest.raises(BackupError, match="it is no backup"):
        restore(tmp_path, tmp_path / "new", told)
    back_up(stopped.path, tmp_path / "backup", told)
    with pytest.raises(BackupError, match="is not empty"):
        restore(tmp_path / "backup", stopped.path, told)
    with pytest.raises(BackupError, match="has no log"):
        back_up(tmp_path / "new", tmp_path / "elsewhere", told)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "log_id": "", "made_at_ms": 0, "files": [{}]}',
                                  json.dumps({"version": 1, "log_id": "", "made_at_ms": 0, "files": [
                                      {"name": "../x", "size": 1, "sha256": "", "source_mtime_ns": 0}]})])  # fmt: skip
def test_a_manifest_that_is_none_is_refused_by_its_name(tmp_path, text):
    (tmp_path / backup.MANIFEST).write_text(text)
    with pytest.raises(BackupError, match=r"backup\.json"):
        read_manifest(tmp_path)


def test_the_manifest_of_a_backup_is_none_before_there_is_one(tmp_path):
    assert read_manifest(tmp_path) is None
