"""Recovery of timers at start-up: finds the pending ones, and those that had fired but had no tombstone yet.

All records of one id without tombstone are a chain: the oldest, later rounds of its loop, and relocated copies. A
client may use an id again once its chain has ended; such a record has no `previous` and begins the next chain. Every
fired batch without tombstone after the oldest record is a round of its chain, even if a power cut has removed records
between them. So the pending timer is the oldest record advanced by the number of fired rounds: the record of that round
if there is one, else a new one.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator

from common.wire.names import find_names
from engine.link.timer import ASSIGNED, Timer
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE
from engine.log.segment.patience import PatientReads
from engine.timers import loops
from engine.timers.native import hash_id, load
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import Tombstones

log = logging.getLogger("penstock.engine")

Name = tuple[int, bytes]
"""Topic id, and the id as clients see it."""

Chain = list[tuple[TimerAddress, Timer]]


def recover(store: TimerStore, tombstones: Tombstones) -> None:
    """Fill the table from the log. Blocks while it reads all pending timers. Raises DiskFullError."""
    following = array("I")
    for segment, ended in store.log.segments():
        file = PatientReads(segment.file, store.log.patience)
        found, total, lost = load(store.table, segment.source(), file, segment.base, store.log.log_id, ended)
        store.totals[segment.base] = total
        if lost or segment.is_partial:
            store.damaged.add(segment.base)
        if lost:
            log.error(
                "file=%s: delayed messages missing: %d bytes cannot be read or fail verification: the next start reads "
                "them again",
                segment.path,
                lost,
            )
        following.extend(found)
    fired = _fired(store)
    fired_from = min((base + at for base, at, _ in store.log.fired), default=store.log.end_position)
    if fired:
        tombstones.will_fire(fired_from)
    # In the order of the log: a simulation has to repeat itself.
    doubtful = dict.fromkeys(hashed for hashed in following if len(store.table.find(hashed)) > 1)
    doubtful.update(dict.fromkeys(hash_id(*name) for name in fired))
    ended_now: list[TimerAddress] = []
    for hashed in doubtful:
        for name, records in _named(store, hashed).items():
            for chain, rounds in _chains(records, fired.get(name, [])):
                ended_now += _settle(store, tombstones, hashed, chain, rounds)
    if store.damaged:
        tombstones.hold(fired_from)
    tombstones.ended(ended_now)


def _fired(store: TimerStore) -> dict[Name, list[int]]:
    """Return positions of fired messages that may lack a tombstone; they are durable by now."""
    found: dict[Name, list[int]] = {}
    for base, at, size in store.log.fired:
        try:
            file = store.log.file_of(base)
            if file is None:
                continue
            batch = PatientReads(file, store.log.patience).read_at(size, at)
        except OSError as error:
            log.error("position=%d: cannot be read: delayed messages may come again: %s", base + at, error)
            continue
        topic_id = BATCH_HEADER.unpack_from(batch)[6]
        for shown_id in _shown_ids(batch):
            found.setdefault((topic_id, shown_id), []).append(base + at)
    return found


def _named(store: TimerStore, hashed: int) -> dict[Name, Chain]:
    """Return the pending timers with that hash by id, oldest first.

    One that cannot be read may have fired, so it leaves the table until the next start reads it.
    """
    found: dict[Name, Chain] = {}
    for base, at, _ in sorted(store.table.find(hashed)):
        try:
            timer = store.read(TimerAddress(base, at))
        except OSError as error:
            store.table.remove(base, at, hashed)
            store.damaged.add(base)
            log.error(
                "position=%d: a delayed message that may have been sent cannot be read: the next start reads it: %s",
                base + at,
                error,
            )
            continue
        if timer is not None:
            found.setdefault((timer.topic_id, timer.shown_id), []).append((TimerAddress(base, at), timer))
    return found


def _chains(records: Chain, fired: Iterable[int]) -> Iterator[tuple[Chain, list[int]]]:
    """Yield each chain of one id with the positions of its fired rounds."""
    starts = [at for at, (_, timer) in enumerate(records) if at == 0 or not timer.previous]
    for start, end in zip(starts, [*starts[1:], len(records)], strict=True):
        first = records[start][0].position
        behind = records[end][0].position if end < len(records) else None
        yield records[start:end], [at for at in fired if first < at and (behind is None or at < behind)]


def _settle(
    store: TimerStore, tombstones: Tombstones, hashed: int, chain: Chain, fired: list[int]
) -> list[TimerAddress]:
    """Leave only the present round of the chain pending; returns the records that have ended."""
    oldest, timer = chain[0]
    present: Timer | None = timer
    for _ in fired:
        present = None if present is None else loops.following(present, oldest.position)
    kept = None
    if present is not None:
        # After all fired rounds, or the next start would count some of them again.
        usable = (
            address
            for address, other in chain
            if other.times == present.times and address.position > max(fired, default=0)
        )
        kept = next(usable, None)
    gone = [address for address, _ in chain if address != kept]
    for address in gone:
        store.table.remove(*address, hashed)
    if present is not None and kept is None:
        (after,) = store.append([present.pack()])
        store.enter(after, present)
        tombstones.fired([oldest])  # once the new round is durable, too
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
