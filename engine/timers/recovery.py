"""What a start makes of the log: which timers are pending, and which had fired when the process ended before it could mark them.

a fired batch without a mark    its messages are in the log: the timers are matched by topic and id, and have ended
a round of a loop               counts once the round before it has fired; if that is pending still, the round is void. A round that is
                                missing behind a fired one is appended now
a copy that was carried on      counts once the first record has ended; if that is pending still, the copy is void
"""

import logging
from collections.abc import Iterator

from engine.link.timer import ASSIGNED, Timer
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE
from engine.log.offline.message import names
from engine.timers import loops
from engine.timers.marks import Marks
from engine.timers.native import hash_id, load
from engine.timers.shelf import Place, Shelf

log = logging.getLogger("penstock.engine")


def recover(shelf: Shelf, marks: Marks) -> None:
    """Fill the table from the log. Blocks for as long as it takes to read what is pending. Raises DiskFullError."""
    followers: dict[int, list[Place]] = {}
    for segment, ended in shelf.log.segments():
        found, total, lost = load(shelf.table, segment.source(), segment.file, segment.base, shelf.log.log_id, ended)
        shelf.totals[segment.base] = total
        if lost:
            log.error("file=%s: delayed messages in %d bytes do not verify: they are lost", segment.path, lost)
        for at, previous in found:
            followers.setdefault(previous, []).append(Place(segment.base, at))
    if shelf.log.fired:
        marks.will_fire(min(base + at for base, at, _ in shelf.log.fired))
    ended_now = list(_fired(shelf, followers, marks))
    for previous, places in followers.items():
        ended_now += [place for place in places if _is_void(shelf, place, previous)]
    marks.ended(ended_now)


def _fired(shelf: Shelf, followers: dict[int, list[Place]], marks: Marks) -> Iterator[Place]:
    """Timers whose messages are in their queues already, which are durable by now; they leave the table."""
    for base, at, size in shelf.log.fired:
        batch = shelf.log.read_at(base, at, size)
        topic_id = BATCH_HEADER.unpack_from(batch)[6]
        for shown_id in _shown_ids(batch):
            found = _pending_before(shelf, topic_id, shown_id, base + at)
            if found is None:
                continue
            place, timer = found
            shelf.table.remove(*place, hash_id(topic_id, shown_id))
            following = loops.following(timer, place.position)
            for other in followers.pop(place.position, []):
                copy = shelf.read(other)
                if copy is not None and copy.times == timer.times:
                    # Not the next round but the same one, being carried on when it fired.
                    shelf.table.remove(*other, hash_id(topic_id, shown_id))
                    yield other
                else:
                    following = None
            if following is None:
                yield place
            else:
                (after,) = shelf.append([following.pack()])
                shelf.enter(after, following)
                marks.fired([place])  # once the round is durable, too


def _pending_before(shelf: Shelf, topic_id: int, shown_id: bytes, position: int) -> tuple[Place, Timer] | None:
    """The timer with that id, if it was stored before that position: a later one is another that uses the id again."""
    for base, at, _ in sorted(shelf.table.find(hash_id(topic_id, shown_id))):
        timer = shelf.read(Place(base, at)) if base + at < position else None
        if timer is not None and (timer.topic_id, timer.shown_id) == (topic_id, shown_id):
            return Place(base, at), timer
    return None


def _is_void(shelf: Shelf, place: Place, previous: int) -> bool:
    """Whether the timer takes over from one that is pending still; then it leaves the table."""
    timer = shelf.read(place)
    assert timer is not None
    hashed = hash_id(timer.topic_id, timer.shown_id)
    if not any(base + at == previous for base, at, _ in shelf.table.find(hashed)):
        return False
    return shelf.table.remove(*place, hashed)


def _shown_ids(batch: bytes) -> Iterator[bytes]:
    at = BATCH_HEADER_SIZE
    while at < len(batch):
        end = at + 4 + int.from_bytes(batch[at : at + 4], "little")
        if batch[at + 4] & ASSIGNED:
            yield batch[at + 5 : at + 21].hex().encode()
        else:
            yield (names(batch[at + 5 : end]).id or "").encode()
        at = end
