"""Writer for power cuts: a fallback buffer on a file system that will be shut down, filled and drained concurrently.

First it opens it and compares everything that was promised before; then it writes, and promises in lines on a pipe, as
`power_writer` does:

    checked RECORDS DAMAGE           all promises were compared
    lost WHAT                        one was not kept, or bytes were read that were never written
    ack ROUND NUMBER                 the entry was answered BUFFERED
    gone ROUND NUMBER                its removal begins, as the engine has it: from here on it may be there or not
"""

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from common.config.memory_store import MemoryConfigStore as MemoryConfig
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.client import connect
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore
from tests.services.redis_server import RedisServer

SEGMENT_BYTES = 1 << 16
WRITERS = 16
TOPICS, KEYS = 3, 5
NOW_MS = 1_700_000_000_000


@dataclass
class Promises:
    """All that was promised on one file system before its latest cut."""

    records: set[tuple[int, int]] = field(default_factory=set)
    """(round, number) of entries that must be there."""

    def take(self, line: bytes) -> None:
        """Hold the buffer to a line that was read before the cut."""
        what, *numbers = line.decode().split()
        place = int(numbers[0]), int(numbers[1])
        if what == "ack":
            self.records.add(place)
        elif what == "gone":
            self.records.discard(place)


def entry(round_: int, number: int) -> BufferEntry:
    """Return unique content."""
    body = b"%d.%d." % (round_, number) * (1 + number % 97)
    return BufferEntry(f"promised.{number % TOPICS}", b"%d" % (number % KEYS), None, body, NOW_MS + number)


def place_of(found: BufferEntry) -> tuple[int, int]:
    round_, number = found.message.split(b".", 2)[:2]
    return int(round_), int(number)


class OnDisk:
    """Directory `directory` is the buffer's."""

    repaired = 0

    def __init__(self, directory: Path, *, careless: bool) -> None:
        self.store = DiskStore(directory, RoomLimits(), lambda: NOW_MS, SEGMENT_BYTES)
        self.promises_early = careless

    def entries(self) -> Iterable[BufferEntry]:
        return [kept.entry for kept in self.store.take((), 10_000_000, 1 << 40)]


class InRedis:
    """A Redis whose append-only file lies in `directory`; a careless one syncs every second. The driver ends it.

    Attributes:
        repaired: 1 when the file's tail was not only torn, so that Redis wanted `redis-check-aof --fix` first.
    """

    layout: str
    promises_early = False

    def __init__(self, directory: Path, *, careless: bool) -> None:
        server = RedisServer(directory, {"appendfsync": "everysec" if careless else "always"})
        self.repaired = 0
        try:
            server.start()
        except RuntimeError as error:
            if "redis-check-aof" not in str(error):
                raise
            repair(directory)
            self.repaired = 1
            server.start()
        address = parse_address(f"{server.url}?layout={self.layout}")
        self.store = RedisStore(
            lambda: connect(address), address.layout, MemoryConfig(), RoomLimits(), lambda: NOW_MS, ["everysec"]
        )

    def entries(self) -> Iterable[BufferEntry]:
        return [
            found
            for shard in self.store._slots.drainable()
            for _, found in self.store._entries(shard, shard.read(10_000_000))
        ]


def repair(directory: Path) -> None:
    """As Redis demands of its operator."""
    (manifest,) = directory.glob("appendonlydir/*.manifest")
    subprocess.run(["redis-check-aof", "--fix", str(manifest)], input="y\n", text=True, check=True, capture_output=True)


class InStreams(InRedis):
    layout = "streams"


class InLists(InRedis):
    layout = "lists"


class BufferWriter:
    """A kind of buffer as `power_cut` wants it."""

    Promises = Promises

    def __init__(self, kind: type[OnDisk] | type[InRedis]) -> None:
        self._kind = kind

    def run(self, directory: str, out: int, round_: int, seed: str, promises: Promises, *, careless: bool) -> None:
        """Open, compare, then write until the power is cut."""

        def say(line: str) -> None:
            os.write(out, line.encode() + b"\n")

        opened = self._kind(Path(directory), careless=careless)
        for fault in faults(opened.entries(), promises):
            say(f"lost {fault}")
        say(f"checked {len(promises.records)} {opened.store.damaged + opened.repaired}")
        Load(opened.store, round_, Random(seed), say, opened.promises_early).run()


def faults(entries: Iterable[BufferEntry], promises: Promises) -> Iterable[str]:
    """Promises that the buffer does not keep, bytes that were never written, and keys whose order changed."""
    found: set[tuple[int, int]] = set()
    last: dict[tuple[int, str, bytes | None], int] = {}
    for each in entries:
        place = place_of(each)
        if each != entry(*place):
            yield f"{place}: wrong bytes"
        found.add(place)
        key = place[0], each.topic, each.key
        if place[1] < last.get(key, -1):
            yield f"{place}: behind {last[key]} of its key"
        last[key] = place[1]
    for place in promises.records - found:
        yield f"(round, number)={place}: not there"


class Load:
    """Puts from several greenlets, and removes from the head now and then."""

    def __init__(
        self, store: BufferStore, round_: int, chance: Random, say: Callable[[str], None], early: bool
    ) -> None:
        self._store, self._round, self._chance, self._say, self._early = store, round_, chance, say, early
        self._number = 0

    def run(self) -> None:
        """Never returns."""
        import gevent  # its loop must be this process's own

        for _ in range(WRITERS):
            gevent.spawn(self._put)
        while True:
            gevent.sleep(self._chance.random() * 0.01)
            kept = self._store.take((), self._chance.randrange(1, 60), 1 << 20)
            for each in kept:
                round_, number = place_of(each.entry)
                self._say(f"gone {round_} {number}")
            self._store.remove(kept)

    def _put(self) -> None:
        while True:
            numbers = range(self._number, self._number + self._chance.randrange(1, 4))
            self._number = numbers.stop
            if self._early:
                self._promise(numbers)
            try:
                self._store.put([entry(self._round, number) for number in numbers])
            except BufferError_:  # the power is out; were it not, the driver would time out and report it
                return
            if not self._early:
                self._promise(numbers)

    def _promise(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._say(f"ack {self._round} {number}")
