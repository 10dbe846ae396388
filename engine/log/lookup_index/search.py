"""One look-up by id or key, in slices: by lookup files and partial indexes, and by reading segments that have none.

A search belongs to one thread at a time and touches only files: the state of the loop is passed to it when it begins. A
message is found only when its own id or key is the wanted one and its batch verifies. So neither equal hashes nor a
damaged file can return a wrong message.
"""

from collections.abc import Iterator
from typing import NamedTuple

from engine.env.base import Env, File
from engine.errors import CorruptionError
from engine.link.claim import CLAIM_QUEUE
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, SEGMENT_HEADER_SIZE, segment_name
from engine.log.lookup_index.lookup_file import Family, LookupFile, Title, file_title
from engine.log.lookup_index.maker import LookupFileMaker
from engine.log.lookup_index.native import TermSearcher, records_with_term, term_hash
from engine.log.lookup_index.segment_read import feed_batches
from engine.log.segment.index_file import read_index_header
from engine.log.segment.native import BatchReader

SLICE_MS = 250
SLICE_BYTES = 64 << 20
"""Bytes of segments read per slice.

A look-up that reaches either limit continues with its next request, after others.
"""


class SearchRange(NamedTuple):
    """A segment to search. `end_at` is None when it is sealed."""

    base: int
    end_at: int | None


class LookupQuery(NamedTuple):
    """A term of a topic to search for. Times are those of storing, both inclusive."""

    family: Family
    topic_id: int
    name: bytes
    from_ms: int
    to_ms: int
    limit: int
    bytes_max: int


class LookupCursor(NamedTuple):
    """Position to continue at: a batch's position in the log, and the first offset in it that was not searched."""

    position: int
    offset: int


class FoundRecord(NamedTuple):
    """A found message. `record` is as stored."""

    queue: int
    offset: int
    stored_at_ms: int
    record: bytes


class _SliceEnds(Exception):
    """Enough was found, or the slice has reached its limits. `cursor` is set."""


class LookupSearch:
    """Searches from a cursor on until enough is found.

    After `run`, `found` has the records in the order of the log, and `cursor` says where to continue: None at the end.
    """

    def __init__(
        self,
        env: Env,
        directory: str,
        log_id: bytes,
        maker: LookupFileMaker,
        places: list[SearchRange],
        wanted: LookupQuery,
        cursor: LookupCursor,
    ) -> None:
        self._env, self._directory, self._log_id, self._maker = env, directory, log_id, maker
        self._places, self._wanted, self._start = places, wanted, cursor
        self._hash = term_hash(log_id, wanted.topic_id, wanted.name)
        self._batches = BatchReader(log_id)
        self.found: list[FoundRecord] = []
        self.found_bytes = self.read_bytes = 0
        self.cursor: LookupCursor | None = cursor
        self.is_cancelled = False
        self.error = ""
        """Reason why the files cannot be read; empty when they can."""

    def cancel(self) -> None:
        """End the search early, because its caller has left. Safe in another thread."""
        self.is_cancelled = True

    @property
    def topic_id(self) -> int:
        """Topic that is searched."""
        return self._wanted.topic_id

    def run(self) -> None:
        """Search one slice. Blocks."""
        if self.is_cancelled:
            return
        self._until_ms = self._env.now_ms() + SLICE_MS
        try:
            for place, following in zip(self._places, [*self._places[1:], None], strict=True):
                if following is None or following.base > self._start.position:
                    self._look_into(place)
            self.cursor = None
        except _SliceEnds:
            pass
        except OSError as error:
            self.error = f"the log cannot be read: {error}"

    def _look_into(self, place: SearchRange) -> None:
        self._pause_at(place.base)
        try:
            file = self._env.open(f"{self._directory}/{segment_name(place.base)}")
        except FileNotFoundError:
            return  # retention deleted it
        try:
            for at in self._addresses(place, file, max(self._start.position - place.base, SEGMENT_HEADER_SIZE)):
                self._take(place, file, at)
        finally:
            file.close()

    def _addresses(self, place: SearchRange, file: File, at: int) -> Iterator[int]:
        """Ascending addresses of batches that may hold the term."""
        family, partials = self._wanted.family, self._maker.partials
        while partial := partials.covering(place.base, family, at):
            try:
                for found in self._by_lookup_file(partials.title(place.base, family, partial), at):
                    yield found
                    at = found + 8
                at = partial.end_at
            except CorruptionError as error:
                if partials.suspect(place.base, family, partial, error):
                    break
        if self._maker.has(place.base, family):
            try:
                index = read_index_header(self._env, self._directory, place.base)
                for found in self._by_lookup_file(
                    file_title(self._directory, self._log_id, place.base, family, index), at
                ):
                    yield found
                    at = found + 8
                return
            except CorruptionError as error:
                if error.file.endswith(family.suffix):
                    self._maker.suspect(place.base, family, error)
        yield from self._by_reading(place, file, at)

    def _by_lookup_file(self, title: Title, at: int) -> Iterator[int]:
        names = LookupFile(self._env, title)
        try:
            if names.summary.newest_ms >= self._wanted.from_ms and names.summary.oldest_ms <= self._wanted.to_ms:
                yield from names.addresses(self._hash, at)
        finally:
            names.close()

    def _by_reading(self, place: SearchRange, file: File, at: int) -> Iterator[int]:
        wanted = self._wanted
        searcher = TermSearcher(
            self._log_id, place.base, wanted.family.number, wanted.topic_id, wanted.name, wanted.from_ms, wanted.to_ms
        )
        end_at = file.size() if place.end_at is None else place.end_at
        for stretch in feed_batches(self._batches, file, place.base, end_at, searcher, at):
            yield from searcher.found()
            self.read_bytes += stretch.end - stretch.at
            self._pause_at(place.base + stretch.end)

    def _take(self, place: SearchRange, file: File, at: int) -> None:
        """Add the batch's matching records. A batch that does not verify is skipped: the scrub reports it."""
        wanted, position = self._wanted, place.base + at
        self._pause_at(position)
        head = file.read_at(BATCH_HEADER_SIZE, at)
        if len(head) < BATCH_HEADER_SIZE:
            return
        _, size, _, _, _, _, topic_id, queue, _, _, base_offset, stored_at_ms = BATCH_HEADER.unpack(head)
        if topic_id != wanted.topic_id or queue & CLAIM_QUEUE or not wanted.from_ms <= stored_at_ms <= wanted.to_ms:
            return
        batch = file.read_at(min(size, file.size() - at), at)
        if self._batches.check(batch, 0, len(batch), position) != size:
            return
        for number, record in records_with_term(batch, wanted.family.number, wanted.name):
            offset = base_offset + number
            if (position, offset) >= self._start:
                self._add(position, FoundRecord(queue, offset, stored_at_ms, record))

    def _add(self, position: int, found: FoundRecord) -> None:
        self.found.append(found)
        self.found_bytes += len(found.record)
        if len(self.found) >= self._wanted.limit or self.found_bytes >= self._wanted.bytes_max:
            self.cursor = LookupCursor(position, found.offset + 1)
            raise _SliceEnds

    def _pause_at(self, position: int) -> None:
        """End the slice here if it has reached a limit and has made progress."""
        late = self.read_bytes >= SLICE_BYTES or self._env.now_ms() >= self._until_ms
        if late and position > self._start.position:
            self.cursor = LookupCursor(position, 0)
            raise _SliceEnds
