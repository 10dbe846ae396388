"""What a start makes of the log: which timers are pending, and which had fired when the process ended before it could mark them.

All records of one id that no mark names are a chain: the oldest, later rounds of its loop, and copies that were carried on. A client
may use an id again once its chain has ended; such a record has no `previous` and begins the next chain. Every fired batch without a
mark that lies behind the oldest record is a round of its chain, whichever of the records between them a power cut has taken. So what is
pending is the oldest record, gone on by as many rounds as have fired: the record of that round if there is one, else a new one.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator

from common.wire.names import find_names
from engine.link.timer import ASSIGNED, Timer
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE
from engine.timers import loops
from engine.timers.native import hash_id, load
from engine.timers.timer_store import Place, Shelf
from engine.timers.tombstones import Marks

log = logging.getLogger("penstock.engine")

Name = tuple[int, bytes]
"""Topic id, and id as clients see it."""

Chain = list[tuple[Place, Timer]]


def recover(shelf: Shelf, marks: Marks) -> None:
    """Fill the table from the log. Blocks for as long as it takes to read what is pending. Raises DiskFullError."""
    following = array("I")
    for segment, ended in shelf.log.segments():
        found, total, lost = load(shelf.table, segment.source(), segment.file, segment.base, shelf.log.log_id, ended)
        shelf.totals[segment.base] = total
        if lost:
            log.error("file=%s: delayed messages in %d bytes do not verify: they are lost", segment.path, lost)
        following.extend(found)
    fired = _fired(shelf)
    if fired:
        marks.will_fire(min(base + at for base, at, _ in shelf.log.fired))
    doubtful = {hashed for hashed in following if len(shelf.table.find(hashed)) > 1}
    doubtful.update(hash_id(*name) for name in fired)
    ended_now: list[Place] = []
    for hashed in doubtful:
        for name, records in _named(shelf, hashed).items():
            for chain, rounds in _chains(records, fired.get(name, [])):
                ended_now += _settle(shelf, marks, hashed, chain, rounds)
    marks.ended(ended_now)


def _fired(shelf: Shelf) -> dict[Name, list[int]]:
    """Where messages lie that had been delayed and may be in no mark; they are durable by now."""
    found: dict[Name, list[int]] = {}
    for base, at, size in shelf.log.fired:
        batch = shelf.log.read_at(base, at, size)
        topic_id = BATCH_HEADER.unpack_from(batch)[6]
        for shown_id in _shown_ids(batch):
            found.setdefault((topic_id, shown_id), []).append(base + at)
    return found


def _named(shelf: Shelf, hashed: int) -> dict[Name, Chain]:
    """The pending timers with that hash by id, the oldest first."""
    found: dict[Name, Chain] = {}
    for base, at, _ in sorted(shelf.table.find(hashed)):
        timer = shelf.read(Place(base, at))
        if timer is not None:
            found.setdefault((timer.topic_id, timer.shown_id), []).append((Place(base, at), timer))
    return found


def _chains(records: Chain, fired: Iterable[int]) -> Iterator[tuple[Chain, list[int]]]:
    """Each chain among the records of one id, and where its rounds have fired."""
    starts = [at for at, (_, timer) in enumerate(records) if at == 0 or not timer.previous]
    for start, end in zip(starts, [*starts[1:], len(records)], strict=True):
        first = records[start][0].position
        behind = records[end][0].position if end < len(records) else None
        yield records[start:end], [at for at in fired if first < at and (behind is None or at < behind)]


def _settle(shelf: Shelf, marks: Marks, hashed: int, chain: Chain, fired: list[int]) -> list[Place]:
    """Have only the present round of the chain pending; returns the records that have ended."""
    oldest, timer = chain[0]
    present: Timer | None = timer
    for _ in fired:
        present = None if present is None else loops.following(present, oldest.position)
    kept = None
    if present is not None:
        # Behind all that has fired, or the next start would count some of it again.
        usable = (
            place for place, other in chain if other.times == present.times and place.position > max(fired, default=0)
        )
        kept = next(usable, None)
    gone = [place for place, _ in chain if place != kept]
    for place in gone:
        shelf.table.remove(*place, hashed)
    if present is not None and kept is None:
        (after,) = shelf.append([present.pack()])
        shelf.enter(after, present)
        marks.fired([oldest])  # once the round is durable, too
        gone.remove(oldest)
    return gone


def _shown_ids(batch: bytes) -> Iterator[bytes]:
    at = BATCH_HEADER_SIZE
    while at < len(batch):
        end = at + 4 + int.from_bytes(batch[at : at + 4], "little")
        if batch[at + 4] & ASSIGNED:
            yield batch[at + 5 : at + 21].hex().encode()
        else:
            yield find_names(batch[at + 5 : end])[0] or b""
        at = end
