"""Repair of segments with bytes of another broker of the group. Design: docs/design/0032-repair-from-a-peer.md.

A batch counts only if its checksum, which is seeded with the log's id and the position, is right. Only bytes below a
position that both brokers have are taken. What is overwritten is kept in `diverged/damaged/`, as the tools of the log
read it. Each step can be repeated: a crash leaves damage that the next check finds again.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from engine.env.base import Env, File
from engine.log.format import (
    BATCH_MAGIC,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    padded,
    parse_segment_header,
    segment_name,
)
from engine.log.segment.native import BatchReader, SegmentIndex
from engine.log.segment.segment import write_whole
from engine.log.segment.side_files import segment_bases
from engine.log.segment.window_scan import StretchKind, WindowScan
from engine.log.write.failed_sync import die_of_sync

logger = logging.getLogger(__name__)
_MAGIC = BATCH_MAGIC.to_bytes(2, "little")

FETCH_BYTES = 256 << 10
"""Bytes that are asked for at once: a broker sends no more."""
WRITE_BYTES = 4 << 20
"""Bytes that are verified and written at once; more for a batch that is larger."""
STEP_BYTES = 128 << 10

Fetch = Callable[[int, int, int], bytes]
"""Returns bytes of the other broker's segment: its base, the address, the number of bytes; fewer at its end.

Raises OSError, or an error of the link with the other broker's sentence.
"""


@dataclass
class SegmentRepair:
    """Outcome for one segment.

    Attributes:
        ranges, bytes: repaired.
        repaired: (address, end) of each.
        left: damaged bytes that the other broker does not have either.
        is_restored: the whole file was missing.
        is_stale: the view was made without these bytes: it is made again at the next opening.
    """

    ranges: int = 0
    bytes: int = 0
    left: int = 0
    is_restored: bool = False
    is_stale: bool = False

    def __post_init__(self) -> None:
        self.repaired: list[tuple[int, int]] = []

    def took(self, at: int, size: int) -> None:
        """Count a range."""
        self.ranges, self.bytes = self.ranges + 1, self.bytes + size
        self.repaired.append((at, at + size))


Steps = Generator[None, None, None]


class PeerRepair:
    """Repairs segment files. Changes no index and no view. Runs in a thread; nothing else writes below the limits.

    Args:
        directory: the data directory.
    """

    def __init__(self, env: Env, directory: str, log_id: bytes) -> None:
        self._env, self._log, self._log_id = env, f"{directory}/log", log_id
        self._aside = f"{directory}/diverged/damaged/log"
        self._batches = BatchReader(log_id)

    def missing(self, first: int) -> list[int]:
        """Positions at which a segment file should begin, and none with a sound header does.

        Only the first one of a gap: its size tells where the next one begins.

        Args:
            first: where the oldest segment should begin.
        """
        bases = segment_bases(self._env.list(self._log))
        found = [first] if bases and bases[0] > first else []
        for base, following in pairwise(bases):
            header = self._header(base)
            if header is None:
                found.append(base)
            elif base + header.size < following:
                found.append(base + header.size)
        return found

    def repair(self, base: int, limit: int, fetch: Fetch, *, is_full: bool, outcome: SegmentRepair) -> Steps:
        """Check the segment at `base` and repair what the other broker has, in steps. Durable in the end.

        Args:
            limit: both brokers have the same bytes below this position.
            is_full: a segment follows, so nothing is being appended.
        Raises:
            OSError: the disk or the link failed; what was repaired before it stays.
        """
        path = f"{self._log}/{segment_name(base)}"
        try:
            file = self._env.open(path)
        except FileNotFoundError:
            yield from self._restore(path, base, limit, fetch, outcome)
            return
        try:
            header = self._sound_header(file, base, fetch, outcome)
            if header is None:
                outcome.left += SEGMENT_HEADER_SIZE
                return
            bad, end_at = yield from self._scan(file, base, min(limit - base, header.size))
            for at, end in bad:
                yield from self._mend(file, base, at, end, fetch, outcome)
                outcome.left += (
                    end - at - sum(done - start for start, done in outcome.repaired if at <= start and done <= end)
                )
            end = min(limit - base, header.size)
            if end_at < end:
                yield from self._mend_end(file, base, end_at, end, fetch, outcome, is_full=is_full)
            if is_full and file.size() < header.size:
                file.allocate(header.size)
            self._sync(file, path)
        finally:
            file.close()

    # -- what is damaged

    def _header(self, base: int) -> SegmentHeader | None:
        path = f"{self._log}/{segment_name(base)}"
        try:
            file = self._env.open(path)
        except FileNotFoundError:
            return None
        try:
            return self._parsed(file.read_at(SEGMENT_HEADER_SIZE, 0), base)
        except OSError:
            return None
        finally:
            file.close()

    def _parsed(self, data: bytes, base: int) -> SegmentHeader | None:
        header = parse_segment_header(data, segment_name(base)) if len(data) == SEGMENT_HEADER_SIZE else None
        return header if header is not None and (header.log_id, header.base) == (self._log_id, base) else None

    def _scan(self, file: File, base: int, limit: int) -> Generator[None, None, tuple[list[tuple[int, int]], int]]:
        """Ranges of bad bytes before whole batches, and the address after the last whole batch."""
        scan = WindowScan(self._batches, file, base, SegmentIndex(base, 0), window_bytes=STEP_BYTES)
        scan.limit = min(scan.limit, limit)
        bad = []
        try:
            for stretch in scan.stretches():
                scan.go_on_with(SegmentIndex(base, 0))
                if stretch.kind is StretchKind.BAD:
                    bad.append((stretch.at, stretch.end))
                yield
            return bad, scan.end_at
        finally:
            scan.close()

    # -- repairs

    def _sound_header(self, file: File, base: int, fetch: Fetch, outcome: SegmentRepair) -> SegmentHeader | None:
        data = b""
        with suppress(OSError):
            data = file.read_at(SEGMENT_HEADER_SIZE, 0)
        header = self._parsed(data, base)
        if header is None:
            fetched = fetch(base, 0, SEGMENT_HEADER_SIZE)
            header = self._parsed(fetched, base)
            if header is not None:
                self._put(file, base, 0, fetched, outcome)
        return header

    def _mend(self, file: File, base: int, at: int, end: int, fetch: Fetch, outcome: SegmentRepair) -> Steps:
        """Repair a range with whole batches of the other broker, as far as it has them."""
        while at < end:
            data = self._whole(base, at, end, fetch)
            if not data:
                return
            self._put(file, base, at, data, outcome)
            at += len(data)
            yield

    def _mend_end(
        self, file: File, base: int, at: int, end: int, fetch: Fetch, outcome: SegmentRepair, *, is_full: bool
    ) -> Steps:
        """Repair what comes after the last whole batch: batches that are lost, then zeros in a full segment."""
        before = outcome.bytes
        yield from self._mend(file, base, at, end, fetch, outcome)
        at += outcome.bytes - before
        if not is_full:
            outcome.left += end - at
            return
        found = file.next_data(at)
        while found is not None and found < end:
            size = min(FETCH_BYTES, end - found)
            data = file.read_at(size, found)
            if any(data):
                if any(fetch(base, found, size)):
                    outcome.left += size
                else:
                    self._put(file, base, found, bytes(len(data)), outcome)
            found = file.next_data(found + size)
            yield

    def _whole(self, base: int, at: int, end: int, fetch: Fetch) -> bytes:
        """Whole batches of the other broker from the address on, about WRITE_BYTES; empty: it has none there."""
        data, wanted = bytearray(), min(WRITE_BYTES, end - at)
        while len(data) < wanted and (piece := fetch(base, at + len(data), min(FETCH_BYTES, wanted - len(data)))):
            data += piece
            first = padded(int.from_bytes(data[4:8], "little")) if data[8:10] == _MAGIC else 0
            if not 0 < first <= end - at:
                return b""
            wanted = max(wanted, first)
        return bytes(data[: self._check(base, at, data)])

    def _check(self, base: int, at: int, data: bytearray) -> int:
        """Bytes of the whole batches with which the data begins."""
        checked = self._batches.scan(SegmentIndex(base, 0), bytes(data), at, at + len(data), at)[0] - at
        return int(checked)

    def _put(self, file: File, base: int, at: int, data: bytes, outcome: SegmentRepair) -> None:
        """Keep what is there, then write the right bytes over it."""
        self._keep(file, base, at, len(data))
        write_whole(file, data, at)
        outcome.took(at, len(data))
        logger.warning(
            "file=%s position=%d: %d damaged bytes were repaired from another broker", file.path, base + at, len(data)
        )

    def _keep(self, file: File, base: int, at: int, size: int) -> None:
        """Copy the bytes to a file of the same name and addresses; unreadable ones are left out. Durable on return."""
        self._env.make_directory(self._aside)
        path = f"{self._aside}/{segment_name(base)}"
        copy = self._env.open(path, create=not self._env.exists(path))
        try:
            for start, count in ((0, SEGMENT_HEADER_SIZE), (at, size)):
                with suppress(OSError):
                    write_whole(copy, file.read_at(count, start), start)
            self._sync(copy, path)
        finally:
            copy.close()

    def _restore(self, path: str, base: int, limit: int, fetch: Fetch, outcome: SegmentRepair) -> Steps:
        """Make a missing file. It has its name only when it is whole and synced."""
        data = fetch(base, 0, SEGMENT_HEADER_SIZE)
        header = self._parsed(data, base)
        if header is None or base + header.size > limit:
            outcome.left += SEGMENT_HEADER_SIZE
            return
        making = f"{path}.peer.tmp"
        file = self._env.open(making, create=True)
        try:
            file.allocate(header.size)
            write_whole(file, data)
            at = SEGMENT_HEADER_SIZE
            while found := self._whole(base, at, header.size, fetch):
                write_whole(file, found, at)
                at += len(found)
                yield
            self._sync(file, making)
        finally:
            file.close()
        self._env.rename(making, path)
        self._env.sync_directory(self._log)
        outcome.took(0, at)
        outcome.is_restored = True
        logger.warning("file=%s: was missing, and was copied from another broker: %d bytes", path, at)

    def _sync(self, file: File, path: str) -> None:
        try:
            file.sync()
        except OSError as error:
            die_of_sync(self._env, path, error)
