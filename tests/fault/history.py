"""Clients' history of a run with faults, and the rules that must hold for it.

A send ends as OK (a result said so), FAILED (a code says that nothing was stored) or UNKNOWN (closed connection, timeout, 3xx): unknown
is never failed. The checks are those of a log: linear, one pass a rule.

    lost         acknowledged, and delivered to nobody
    invented     delivered, but never sent, or sent and refused
    altered      delivered with another body, key or topic's place than was sent
    two_values   one (queue, offset) that stands for two messages, over all acknowledgements and deliveries
    swapped      acknowledged messages of one key whose offsets do not follow the order of their sends
    backwards    offsets of one queue that a reader saw fall without a redelivery
    holes        offsets below the highest delivered one that nobody was given
    copies       messages stored more than once (allowed: a client may send again); duplicates: deliveries beyond a message's first
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"

Place = tuple[int, int]  # queue, offset


def outcome_of(code: int) -> str:
    """What a result's code says about the store: see Code in thrift/message.thrift."""
    return {0: OK, 3: UNKNOWN, 5: OK}.get(code // 100, FAILED)


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Sent(NamedTuple):
    """One attempt. `number` counts the attempts of one key; `place` is set when the outcome is OK."""

    id: str
    key: str
    number: int
    digest: str
    outcome: str
    place: Place | None = None


class Delivered(NamedTuple):
    """One delivery, in the order in which its reader got it."""

    id: str
    key: str
    digest: str
    place: Place
    attempt: int = 1


@dataclass
class Verdict:
    """Each broken rule with the ids or places that show it; empty lists when all is well."""

    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    two_values: list[Place] = field(default_factory=list)
    swapped: list[tuple[str, str]] = field(default_factory=list)
    backwards: list[tuple[Place, Place]] = field(default_factory=list)
    holes: list[Place] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    copies: int = 0
    duplicates: int = 0

    def broken(self) -> dict[str, list]:
        """The rules that do not hold, with up to five proofs each."""
        rules = ("lost", "invented", "altered", "two_values", "swapped", "backwards", "holes")
        return {name: getattr(self, name)[:5] for name in rules if getattr(self, name)}


def check(sent: Iterable[Sent], delivered: Iterable[Delivered], *, dense: bool = True) -> Verdict:
    """Hold a history against the rules.

    Args:
        sent: every attempt of every client, whatever became of it; ids are unique.
        delivered: of one reader that has read to the end.
        dense: whether the reader had to see every offset (false for a group that shares with another reader).
    """
    sent, delivered = list(sent), list(delivered)
    verdict = Verdict(acknowledged=sum(each.outcome == OK for each in sent))
    verdict.unknown = sum(each.outcome == UNKNOWN for each in sent)
    by_id = {each.id: each for each in sent}
    assert len(by_id) == len(sent), "ids must be unique, or nothing can be said"
    _contents(verdict, by_id, delivered)
    _values(verdict, sent, delivered)
    _order(verdict, sent, delivered)
    if dense:
        _density(verdict, delivered)
    return verdict


def _contents(verdict: Verdict, by_id: dict[str, Sent], delivered: list[Delivered]) -> None:
    places: dict[str, set[Place]] = defaultdict(set)
    for each in delivered:
        places[each.id].add(each.place)
        origin = by_id.get(each.id)
        if origin is None or origin.outcome == FAILED:
            verdict.invented.append(each.id)
        elif (origin.digest, origin.key) != (each.digest, each.key):
            verdict.altered.append(each.id)
    verdict.lost = [each.id for each in by_id.values() if each.outcome == OK and each.place not in places[each.id]]
    verdict.copies = sum(len(found) - 1 for found in places.values() if found)
    verdict.duplicates = len(delivered) - sum(map(len, places.values()))


def _values(verdict: Verdict, sent: list[Sent], delivered: list[Delivered]) -> None:
    values: dict[Place, set[str]] = defaultdict(set)
    for each in [*(one for one in sent if one.outcome == OK), *delivered]:
        values[each.place].add(each.id)
    verdict.two_values = [place for place, ids in values.items() if len(ids) > 1]


def _order(verdict: Verdict, sent: list[Sent], delivered: list[Delivered]) -> None:
    last_of_key: dict[str, Sent] = {}
    for each in sorted((one for one in sent if one.outcome == OK), key=lambda one: one.number):
        before = last_of_key.get(each.key)
        if before is not None and not (before.place[0] == each.place[0] and before.place[1] < each.place[1]):
            verdict.swapped.append((before.id, each.id))
        last_of_key[each.key] = each
    last_of_queue: dict[int, int] = {}
    for each in delivered:
        queue, offset = each.place
        if each.attempt == 1 and offset <= last_of_queue.get(queue, -1):
            verdict.backwards.append(((queue, last_of_queue[queue]), each.place))
        last_of_queue[queue] = max(offset, last_of_queue.get(queue, -1))


def _density(verdict: Verdict, delivered: list[Delivered]) -> None:
    seen: dict[int, set[int]] = defaultdict(set)
    for each in delivered:
        seen[each.place[0]].add(each.place[1])
    for queue, offsets in seen.items():
        verdict.holes += [(queue, offset) for offset in range(max(offsets) + 1) if offset not in offsets]
