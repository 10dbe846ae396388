"""A stopped log of known bytes, and its readable content after a bit was flipped."""

import struct
from pathlib import Path
from random import Random
from typing import NamedTuple

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.errors import CorruptionError
from engine.log import Log, open_log
from engine.log.format import BATCH_HEADER, BATCH_MAGIC, KIND_MESSAGES, pack_batch, pack_record, padded, split_records
from engine.log.lookup_index.lookup_file import FAMILIES
from engine.log.lookup_index.maker import AFTER_FAULT_S, IDLE_S
from engine.log.lookup_index.search import LookupCursor, LookupQuery
from engine.log.offline.directory import opened

CONFIG = LogConfig(segment_bytes=1 << 16)
KINDS = ("segment", "unused end", "index", "ids", "keys", "table", "manifest", "current", "other state", "lock")
LIVE = ("segment", "index", "ids", "keys", "table", "manifest", "current")
KEYS, NAMED, BATCH = 12, 3000, 10
IDS_ASKED = range(0, NAMED, 50)
"""Of the messages with an id and a key, enough of them for files of several blocks, those that an engine is asked for by id; by key all."""


class Held(NamedTuple):
    """Served records."""

    topics: list
    records: dict[tuple[int, int, int], bytes]
    progress: dict[bytes, bytes]
    named: dict[tuple[str, bytes], set[tuple[int, int, int]]]
    """By family and name, where its messages are."""


class Flip(NamedTuple):
    """One bit, and the most records that it may cost."""

    kind: str
    name: str
    at: int
    bit: int
    records_max: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.name} byte {self.at} bit {self.bit}"


class KnownLog:
    """Made once; `restore` puts every file back as it was.

    `written` is every value that ever was written under the progress key.
    """

    def __init__(self, path: Path, chance: Random) -> None:
        self.path, self._chance = path, chance
        self.written: set[bytes] = set()
        log = open_log(RealEnv(), str(path), CONFIG)
        log.create_topics([("first", 3), ("second", 1)])
        for number in range(700):
            queue = chance.randrange(3)
            records = [pack_record(chance.randbytes(chance.randrange(1, 400))) for _ in range(chance.randrange(1, 5))]
            assert log.append(pack_batch(KIND_MESSAGES, 1, queue, records), 1, 1_700_000_000_000 + number)[0][0] == 0
            if number % 40 == 0:
                self.written.add(b"%d" % number)
                log.put_progress([(b"group", b"%d" % number)])
            if number < NAMED // BATCH:
                named = [pack_record(named_message(number * BATCH + at)) for at in range(BATCH)]
                log.append(pack_batch(KIND_MESSAGES, 2, 0, named), 1, 1_700_000_000_000 + number)
        log.checkpoint()
        make_names(log)
        self.held = read_all(log)
        log.close()
        # Compaction leaves tables that are not read any more.
        with opened(path) as directory:
            self._live = {each["name"].lstrip("/") for each in directory.view.store._database.live_files()}
        self._files = {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}
        self._places = {kind: list(self._of(kind)) for kind in KINDS}

    def restore(self) -> None:
        """Restore every file and remove new ones."""
        for file in [file for file in self.path.rglob("*") if file.is_file()]:
            if file.relative_to(self.path) not in self._files:
                file.unlink()
        for name, data in self._files.items():
            (self.path / name).parent.mkdir(exist_ok=True)
            (self.path / name).write_bytes(data)

    def flip(self, kind: str) -> Flip:
        """A bit of that kind of bytes, on the disk."""
        name, start, size, records = self._chance.choice(self._places[kind])
        flip = Flip(kind, str(name), start + self._chance.randrange(size), self._chance.randrange(8), records)
        data = bytearray(self._files[name])
        data[flip.at] ^= 1 << flip.bit
        (self.path / name).write_bytes(data)
        return flip

    def _of(self, kind: str):
        """(file, address, bytes, records that hang on them) of all bytes of a kind."""
        for name, data in self._files.items():
            if name.suffix == ".seg":
                yield from self._of_segment(kind, name, data)
            elif kind == self._kind(name) and data:
                yield name, 0, len(data), 0

    def _of_segment(self, kind: str, name: Path, data: bytes):
        at, is_empty = 64, True
        while at + 48 <= len(data):
            _, size, magic, of, _, _, _, _, count, *_ = BATCH_HEADER.unpack_from(data, at)
            if magic != BATCH_MAGIC:
                break
            if kind == "segment":
                yield name, at, size, count if of == KIND_MESSAGES else 0
            at, is_empty = at + padded(size), False
        if kind == "segment" and not is_empty:
            yield name, 0, 64, 0
        elif kind == "unused end" and at < len(data):
            yield name, at, len(data) - at, 0

    def _kind(self, name: Path) -> str:
        if name.parts[0] != "state":
            return {".idx": "index", ".mid": "ids", ".key": "keys"}.get(name.suffix, "lock")
        if name.name.startswith("MANIFEST"):
            return "manifest"
        if name.name in self._live:
            return "table"
        return "current" if name.name == "CURRENT" else "other state"


def read_all(log: Log) -> Held:
    """Read everything that the log serves, skipping reported damage."""
    records = {}
    topics = log.topics()
    for topic in topics:
        for queue in range(topic.queues):
            offset, end = log.bounds(topic.id, queue)
            while offset < end:
                try:
                    pieces = log.read(topic.id, queue, offset, 100, 1 << 16)
                except CorruptionError as error:
                    if error.next_offset is None:
                        break
                    offset = error.next_offset
                    continue
                for piece in pieces:
                    for data in split_records(piece.records):
                        records[topic.id, queue, offset] = data
                        offset += 1
    names = [("id", b"id-%d" % number) for number in IDS_ASKED] + [("key", b"key-%d" % key) for key in range(KEYS)]
    return Held(topics, records, dict(log.progress()), {name: look_up(log, *name) for name in names})


def named_message(number: int) -> bytes:
    """Thrift binary of a message with an id and a key."""
    texts = ((3, b"key-%d" % (number % KEYS)), (6, b"id-%d" % number))
    return b"".join(struct.pack(">bhi", 11, field, len(text)) + text for field, text in texts) + b"\0"


def look_up(log: Log, family: str, name: bytes) -> set[tuple[int, int, int]]:
    """Where the messages with the name are, as a look-up says."""
    found: set[tuple[int, int, int]] = set()
    cursor: LookupCursor | None = LookupCursor(0, 0)
    while cursor is not None:  # a slice of a search ends by time, too
        search = log.look_up.search(LookupQuery(FAMILIES[family], 2, name, 0, 1 << 62, 1000, 1 << 20), cursor)
        search.run()
        assert search.error == ""
        found.update((2, each.queue, each.offset) for each in search.found)
        cursor = search.cursor
    return found


def make_names(log: Log) -> None:
    """Let lookup files be made until there is nothing to do."""
    next(pause_s for pause_s in log.look_up.maker.steps() if pause_s in (IDLE_S, AFTER_FAULT_S))
