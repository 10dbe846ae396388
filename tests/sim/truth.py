"""The end of a simulation: the whole log is read and compared with what was promised, and all tables must be empty."""

import re
from typing import TYPE_CHECKING

from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.link import layout
from engine.log.format import SEGMENT_HEADER_SIZE, split_records
from engine.log.upkeep.scrub import Scrub
from engine.ops.admin_groups import lag_of
from tests.sim.history import History
from tests.sim.sent import NAME, Broken, GroupHistory, Place, Sent

if TYPE_CHECKING:
    from engine.node import Node
    from tests.sim.engine import Engine

DEAD = "_dlq."
UNREAD_MS = 61_000
"""A delayed message that cannot be read is tried again after a minute."""

REQUEST_MS_MAX = 5_000
SEGMENT = re.compile(r"(\d{20})\.seg$")


def check_durable(engine: "Engine") -> None:
    """What the log calls durable is on the disk."""
    if engine.node is None:
        return
    position = engine.node.store.durable_position
    for path, content in engine.env.files.items():
        found = SEGMENT.search(path)
        if found is None or not content.changes:
            continue
        base = int(found[1])
        missing = content.unsynced_below(max(0, position - base)) if position > base + SEGMENT_HEADER_SIZE else None
        if missing is not None:
            raise Broken(f"{path}: durable up to {position} it is said, but byte {base + missing} was not synced")


def is_quiet(engine: "Engine", history: History) -> bool:
    """Whether nothing is left to deliver, as far as can be seen without reading the log."""
    node = engine.node
    if node is None or node.delivery._dead_lettering.pending:
        return False
    wall_ms = history.wall_ms
    next_at = node.timers.table.next_at()
    if next_at is not None and next_at <= wall_ms + UNREAD_MS:
        return False
    for group in node.delivery.groups.values():
        if group.name == "openers" or history.groups[group.name].rules.paused:
            continue
        for cursor in group.load_all():
            first, end = node.store.bounds(cursor.topic_id, cursor.queue)
            if lag_of(cursor, first, end):
                return False
    return True


class Truth:
    """The log of an engine after everything has healed.

    Attributes:
        copies: places of each message in the log, dead letters left out.
        dead: names of dead letters by group.
        stored_at: per queue, as topic id, queue, the first offset of each slice with its time.
    """

    def __init__(self, engine: "Engine", history: History) -> None:
        self.engine, self.history = engine, history
        assert engine.node is not None
        self.node: Node = engine.node
        self.copies: dict[str, list[Place]] = {}
        self.dead: dict[str, set[str]] = {}
        self.stored_at: list[tuple[int, int, list[tuple[int, int]]]] = []
        self._read_all()

    def check(self) -> None:
        """Raise the first broken promise."""
        for sent in self.history.sent.values():
            self._check_sent(sent, self.copies.get(sent.name, []))
        unknown = set(self.copies) - set(self.history.sent)
        if unknown:
            raise Broken(f"the log has messages that nobody has sent: {min(unknown)}")
        for group in self.history.groups.values():
            self._check_group(group)
        self._check_times()
        self._check_scrub()
        self._check_replies()
        self._check_requests()
        self._check_tables()

    def _read_all(self) -> None:
        store = self.node.store
        for topic in store.topics(limit=100_000):
            for queue in range(topic.queues):
                offset, end = store.bounds(topic.id, queue)
                self.stored_at.append((topic.id, queue, []))
                while offset < end:
                    offset = self._read(topic.id, topic.name, queue, offset, end)

    def _read(self, topic_id: int, topic: str, queue: int, offset: int, end: int) -> int:
        store = self.node.store
        for _ in range(200):
            try:
                pieces = store.read(topic_id, queue, offset, 1000, 1 << 20)
            except OffsetOutOfRangeError as gone:
                return max(gone.first_offset, offset + 1)  # its retention has ended just now
            except CorruptionError as damage:
                if damage.next_offset is None or not (self.history.power_cuts or self.history.is_damaged):
                    raise Broken(f"topic={topic} queue={queue}: {damage}") from damage
                return max(damage.next_offset, offset + 1)
            if pieces:
                break
            self.engine.world.run(20)  # it is being fetched
        else:
            raise Broken(f"topic={topic} queue={queue}: nothing can be read at {offset}, the end is {end}")
        self.stored_at[-1][2].extend((piece.first_offset, piece.stored_at_ms) for piece in pieces)
        for piece in pieces:
            for number, message in enumerate(split_records(piece.records)):
                self._take((topic, queue, piece.first_offset + number), message)
        return pieces[-1].first_offset + pieces[-1].count

    def _take(self, place: Place, message: bytes) -> None:
        found = NAME.search(message)
        if found is None:
            raise Broken(f"{place}: bytes that nobody has sent: {message[:80]!r}")
        if place[0].startswith(DEAD):
            self.dead.setdefault(place[0].removeprefix(DEAD), set()).add(found[2].decode())
        elif found[1].decode() != place[0]:
            raise Broken(f"{place}: holds {found[2].decode()} of topic {found[1].decode()}")
        else:
            self.copies.setdefault(found[2].decode(), []).append(place)

    def _check_sent(self, sent: Sent, places: list[Place]) -> None:
        if sent.state == "refused" and places:
            raise Broken(f"{sent.name}: its answer said that it is not stored, and the log has it at {places}")
        may_repeat = bool(sent.due_ms) and self.history.may_repeat
        if sent.once and len(places) > 1 and not may_repeat:
            raise Broken(f"{sent.name}: stored {len(places)} times, at {places}")
        if sent.cancelled == "kept" and places and not self.history.is_damaged:
            raise Broken(f"{sent.name}: cancelled, and stored at {places}")
        if sent.state != "kept" or sent.cancelled in ("kept", "open"):
            return
        if sent.due_ms > self.history.wall_ms - 1_000:
            return
        if not places and (self.history.deletes_early or self.history.may_be_gone(sent, sent.place)):
            return
        if not places:
            raise Broken(f"{sent.name}: acknowledged{' as durable' * sent.durable}, and the log does not have it")
        if sent.place is not None and not sent.due_ms and sent.place not in places:
            raise Broken(f"{sent.name}: acknowledged at {sent.place}, and the log has it at {places}")

    def _check_group(self, group: GroupHistory) -> None:
        rules = group.rules
        found = self.node.delivery.groups.get(rules.name)
        dead = self.dead.get(rules.name, set())
        for name in dead:
            sent = self.history.sent[name]
            frames = self._frames(group, name) if name in self.copies else 99
            if name not in group.rejected and frames < rules.attempts_max and sent.place is not None:
                raise Broken(
                    f"group={rules.name}: {name} is a dead letter after {frames} of {rules.attempts_max} attempts"
                )
        if found is None or rules.name == "openers" or rules.paused:
            return
        topics = {cursor.topic_name for cursor in found.load_all()}
        for name, places in self.copies.items():
            sent = self.history.sent[name]
            if sent.topic not in topics or (rules.tags and sent.tag not in rules.tags) or name in dead:
                continue
            if not self.history.definitions_hold and rules.tags:
                continue
            if name not in group.settled and self.history.may_be_gone(sent, places[0]):
                continue  # the group has passed over it; since then its retention was raised
            if name in self.history.unread and all(self._is_passed_over(group, place) for place in places):
                continue  # since then the disk can read it again
            if name not in group.delivered and sent.name not in self.history.asked.values():
                raise Broken(f"group={rules.name}: {name} at {places} was never delivered")
            if self.history.ages.default_ms and self._frames(group, name) >= rules.attempts_max:
                continue  # a dead letter, whose own retention has ended
            if name not in group.settled and sent.name not in self.history.asked.values():
                raise Broken(f"group={rules.name}: {name} at {places} was delivered and never settled")

    def _is_passed_over(self, group: GroupHistory, place: Place) -> bool:
        """Whether the engine says that the group does not get it, or that the queue began after it."""
        return place in group.passed_over or place[2] < self.history.begins.get(place[:2], 0)

    def _frames(self, group: GroupHistory, name: str) -> int:
        return max(group.frames.get(place, 0) for place in self.copies[name])

    def _check_times(self) -> None:
        """A look-up by time finds the first record stored then or later, while the wall clock never stepped.

        After failed reads it may find an earlier one, but never a later one.
        """
        if self.history.clock_steps or self.history.is_damaged:
            return
        for topic_id, queue, pieces in self.stored_at:
            for before, (offset, at_ms) in zip([(0, 0), *pieces], pieces, strict=False):
                found = self.node.store.offset_at_time(topic_id, queue, at_ms)
                is_early = before[1] < at_ms and found <= before[0] and before[1]
                if found > offset or (is_early and not self.engine.env.hits.get("read")):
                    raise Broken(
                        f"topic={topic_id} queue={queue}: offset {offset} is of {at_ms}, a look-up finds {found}"
                    )

    def _check_scrub(self) -> None:
        """A scrub finds nothing in a log whose disk has lost nothing and read everything.

        An index file that was made while its segment could not be read is made again by the next reader.
        """
        if self.history.power_cuts or self.history.is_damaged:
            return
        scrub = Scrub(self.engine.env, "/engine/log", self.node.store.log_id, 1 << 30)
        for _ in scrub.steps():
            if scrub.counts.rounds:
                break
        if scrub.counts.damage:
            raise Broken(f"a scrub finds {scrub.counts.damage} damaged places")

    def _check_replies(self) -> None:
        for token, count in self.history.replied.items():
            if count > 3 + sum(sum(self.history.groups[name].frames.values()) for name in ("desk", "late")):
                raise Broken(f"{self.history.asked[token]}: {count} replies")

    def _check_requests(self) -> None:
        now_ms = self.engine.world.now_ms
        for link in self.engine.links:
            for request in link.open.values():
                longest_ms = REQUEST_MS_MAX + (35_000 if request.op == layout.PULL else 0)
                if now_ms - request.sent_ms > longest_ms:
                    raise Broken(
                        f"{link.owner.name}: operation {request.op} is not answered for {now_ms - request.sent_ms} ms"
                    )

    def _check_tables(self) -> None:
        """Nothing is left of what has ended."""
        node, store = self.node, self.node.store
        for _ in range(50):
            if store.writer._jobs.is_idle:  # a job that has begun just now ends
                break
            self.engine.world.run(5)
        open_pulls = sum(request.op == layout.PULL for link in self.engine.links for request in link.open.values())
        left = {
            "pulls that wait for no client": max(0, node.delivery.parked - open_pulls),
            "dead letters to write": len(node.delivery._dead_lettering.pending),
            "replies to confirm": len(node.exchange._open),
            "callbacks of syncs": len(store.writer._syncer._waiting),
            "segments to seal": len(store.segments.sealing),
            "jobs of the sealing thread": 0 if store.writer._jobs.is_idle else 1,
            "layers of the view": len(store._view._layers) - 1,
        }
        for group in node.delivery.groups.values():
            rules = self.history.groups[group.name].rules
            if rules.paused or rules.name == "openers":
                continue
            for cursor in group.load_all():
                where = f"{group.name}/{cursor.topic_name}/{cursor.queue}"
                first, end = store.bounds(cursor.topic_id, cursor.queue)
                left[f"messages of {where}"] = lag_of(cursor, first, end)
                left[f"ranges in flight of {where}"] = len(cursor.in_flight)
        found = {name: count for name, count in left.items() if count}
        if found:
            raise Broken(f"left after everything has healed: {found}")
