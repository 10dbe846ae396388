"""A stopped log of several segments in real files, and what is damaged in it."""

from pathlib import Path
from typing import NamedTuple

import pytest

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import BATCH_HEADER, KIND_MESSAGES, pack_batch, pack_record, padded
from engine.log.offline.directory import opened
from engine.log.offline.verify import verify

SEGMENT = 1 << 16
CONFIG = LogConfig(segment_bytes=SEGMENT)
NOW = 1_700_000_000_000


class Batch(NamedTuple):
    path: Path
    at: int
    size: int
    count: int
    position: int


class StoppedLog:
    """A directory with a log of some segments, closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        log = open_log(RealEnv(), str(path), CONFIG)
        log.create_topics([("orders", 4), ("pay", 1)])
        for number in range(400):
            bodies = [b"%05d/%d" % (number, part) * 30 for part in range(1 + number % 4)]
            batch = pack_batch(KIND_MESSAGES, 1 + number % 2, number % 2 * 0, [pack_record(body) for body in bodies])
            ((code, _),) = log.append(batch, 1, NOW + number)
            assert code == 0
            if number % 50 == 0:
                log.put_progress([(b"group", b"%d" % number)])
        log.checkpoint()
        log.close()

    def open(self):
        return open_log(RealEnv(), str(self.path), CONFIG)

    def files(self, suffix: str) -> list[Path]:
        return sorted((self.path / "log").glob(f"*{suffix}"))

    def batches(self, segment: int) -> list[Batch]:
        """Of one segment file, by format.md alone."""
        path = self.files(".seg")[segment]
        data, at, found = path.read_bytes(), 64, []
        while at + 48 <= len(data):
            _, size, magic, _, _, _, _, _, count, *_ = BATCH_HEADER.unpack_from(data, at)
            if magic != 0x5042:
                break
            found.append(Batch(path, at, size, count, int(path.stem) + at))
            at += padded(size)
        return found

    def write(self, path: Path, at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def verify(self):
        """(totals, findings)."""
        found = []
        with opened(self.path) as directory:
            return verify(directory, found.append), found


@pytest.fixture
def stopped(tmp_path):
    return StoppedLog(tmp_path / "data")
