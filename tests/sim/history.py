"""History of one simulated engine: what clients sent, were answered and got, and the first promise that was broken.

The rules that are checked on the way raise `Broken` at the event that breaks them. `truth.py` checks the rest at the end,
against the whole log.
"""

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.link import layout
from tests.sim.ages import Ages
from tests.sim.sent import NAME, Broken, GroupHistory, GroupRules, LastLease, Place, Sent
from tests.sim.unread import parse_unread

if TYPE_CHECKING:
    from tests.sim.engine import Engine

RECORD_BYTES = 120
"""A record takes at most so much beside its message, its batch's header included."""

BATCH_MESSAGES_MAX = 5
"""Most messages per batch of a sender. A batch is hidden as a whole."""

PAUSE_MS = 250
"""Waiting pulls follow the configuration at the next check of deadlines."""


PASSED_OVER = re.compile(
    r"group=(\S+) topic=(\S+) queue=(\d+) offset=(\d+): cannot be read, continuing at offset (\d+)"
)
IDS_UNKNOWN = re.compile(r"file=(\S+) position=(\d+): the ids in (\d+) bytes are unknown")


class History:
    """All of it, for one engine.

    Attributes:
        definitions_hold: the engine always had its definitions.
        deletes_early: a full disk may have deleted the oldest segments.
        one_range: queues may be delivered one range at a time.
        is_damaged: a start has met sectors that the disk cannot read, and they held more than records of the view.
        copies_repeat: a start has met damage, after which copied records do not count: they may be copied again.
        unread: names of messages that a start has reported as lost. Groups pass over them for good, even when a later
            start can read them.
        begins: per topic and queue, the highest offset at which it began after a start that has reported lost bytes.
        unread_topics: names of topics of which a start has reported a record as lost.
        paused: groups that an operator has paused, with the time.
        shown: topic ids that clients know, with the topics' names.
        ages: what retention may have deleted.
        queues: of topics that have grown, their latest number of queues.
        moves_hold: the engine has seen each growth by itself, and no power cut came while one was not durable. It may keep
            the topic's record and lose the growth's.
        may_repeat: a start could not read messages that delayed ones had become, and says that they may come again.
    """

    def __init__(self, engine: "Engine", groups: tuple[GroupRules, ...], retention_ms: int = 0) -> None:
        self.engine, self.world = engine, engine.world
        self.sent: dict[str, Sent] = {}
        self.groups = {rules.name: GroupHistory(rules) for rules in groups}
        self.names: dict[Place, str] = {}
        self.by_key: dict[tuple[str, int, bytes], list[int]] = {}
        self.asked: dict[bytes, str] = {}
        self.replied: dict[bytes, int] = {}
        self.power_cuts = self.deliveries = self.clock_steps = 0
        self.definitions_hold, self.deletes_early, self.one_range = True, False, False
        self.is_damaged = self.copies_repeat = False
        self.unread: set[str] = set()
        self.unread_topics: set[str] = set()
        self.begins: dict[tuple[str, int], int] = {}
        self._unborn: dict[tuple[str, int], int] = {}
        self.paused: dict[str, int] = {}
        self.shown: dict[int, str] = {}
        self.process = 0
        self.queues: dict[str, int] = {}
        self.moves_hold, self.may_repeat, self._is_growing = True, False, False
        self.ages = Ages(engine, retention_ms)
        engine.on_crash, engine.on_stop, engine.on_unread = self._on_crash, self._on_stop, self._on_unread
        engine.on_start = self._on_start

    @property
    def wall_ms(self) -> int:
        """The engine's wall clock."""
        return self.engine.env.now_ms()

    def stamp(self, group: GroupHistory) -> tuple[int, int]:
        """What has to be unchanged for a lease to hold."""
        return self.process, group.resets

    def _on_stop(self) -> None:
        """Leases that run hold over an orderly stop, and so does what was acknowledged."""
        self._end_age(power_cut=False)
        before = {group.rules.name: self.stamp(group) for group in self.groups.values()}
        self.process += 1
        for group in self.groups.values():
            stamp = self.stamp(group)
            group.leases = {
                place: lease._replace(stamp=stamp)
                for place, lease in group.leases.items()
                if lease.stamp == before[group.rules.name]
            }
            group.done = {place: stamp for place, done in group.done.items() if done == before[group.rules.name]}

    def _on_start(self) -> None:
        """A topic id that a client knows stays that topic's. No topic gets the id of one whose record is lost."""
        assert self.engine.node is not None
        if self.engine.node.store.damage:
            self.copies_repeat = True
            for sent in self.sent.values():
                sent.once = sent.once and not sent.name.startswith("copied-")
        for topic_id, name in self.shown.items():
            found = self.engine.node.store.topic_by_id(topic_id)
            if found is None and name in self.unread_topics:
                continue
            if found is None or found.name != name:
                raise Broken(f"topic id {topic_id} was shown for {name}, and is {found and found.name} after a start")

    def _on_unread(self, lost: list[bytes]) -> None:
        """A start reports bytes as lost, because the disk cannot read them: no promise about them binds."""
        parts = parse_unread(lost)
        self.is_damaged = self.is_damaged or not parts.is_view_only
        self.unread_topics |= parts.topics
        for group, topic_id, queue in sorted(parts.progress):
            self._forget_progress(self.groups[group], (self.shown.get(topic_id, ""), queue))
        assert self.engine.node is not None
        store = self.engine.node.store
        topics = {topic.name for topic in store.topics(limit=100_000)}
        for topic in store.topics(limit=100_000):
            for queue in range(topic.queues):
                self._unborn[topic.name, queue] = topic.id
        self._note_begins()
        names = {found[2].decode() for data in lost for found in NAME.finditer(data)}
        self.unread |= names
        names.update(sent.name for sent in self.sent.values() if sent.topic not in topics)
        for place in [place for place, name in self.names.items() if name in names]:
            self._unlink(self.sent[self.names.pop(place)], place)
            for group in self.groups.values():
                group.done.pop(place, None)
                group.leases.pop(place, None)
        for name in names & self.sent.keys():
            self.sent[name].state, self.sent[name].place, self.sent[name].once = "open", None, False

    def _forget_progress(self, group: GroupHistory, queue: tuple[str, int]) -> None:
        """The group may get again what it had acknowledged or leased in the queue."""
        for place in [place for place in (*group.done, *group.leases) if place[:2] == queue]:
            group.done.pop(place, None)
            group.leases.pop(place, None)

    def reported(self, line: str) -> None:
        """Take a line of the engine's log. What it reports as unreadable does not bind, and nothing else."""
        if found := PASSED_OVER.match(line):
            places = ((found[2], int(found[3]), offset) for offset in range(int(found[4]), int(found[5])))
            self.groups[found[1]].passed_over.update(places)
        elif found := IDS_UNKNOWN.match(line):
            for name in self._names_in(found[1], int(found[2]), int(found[3])):
                self.sent[name].once = False

    def _names_in(self, path: str, position: int, size: int) -> set[str]:
        """Names of the messages in these bytes of a segment."""
        at = position - int(path[-24:-4])
        data = bytes(self.engine.env.files[path].seen[at : at + size])
        return {found[2].decode() for found in NAME.finditer(data)}

    def _note_begins(self) -> None:
        """Note where queues begin of which a start may have been unable to read the first messages.

        One that has no other message begins where its next one is stored, above the offsets of those.
        """
        assert self.engine.node is not None
        env = self.engine.env
        on_call, env.on_call = env.on_call, None  # no fault hits the checker's own reads
        for (name, queue), topic_id in list(self._unborn.items()):
            with suppress(EngineError):
                first, end = self.engine.node.store.bounds(topic_id, queue)
                self.begins[name, queue] = max(first, self.begins.get((name, queue), 0))
                if first < end:
                    del self._unborn[name, queue]
        env.on_call = on_call

    def before_crash(self) -> None:
        """The process is going to end."""
        store = self.engine.node and self.engine.node.store
        if store:
            self._note_begins()
        self._is_growing = bool(store and store.topics_position > store.durable_position)

    def _on_crash(self, power_cut: bool) -> None:
        self.process += 1
        self.moves_hold = self.moves_hold and not (power_cut and self._is_growing)
        self._end_age(power_cut)
        if not power_cut:
            return
        self.power_cuts += 1
        # What was not promised to outlive this may be gone, and its offsets may be used again.
        for place, name in list(self.names.items()):
            sent = self.sent.get(name)
            if sent is not None and not (sent.durable and sent.place == place):
                del self.names[place]
                self._unlink(sent, place)
        for sent in self.sent.values():
            if sent.state == "kept" and not sent.durable:
                sent.state, sent.place = "open", None
        for group in self.groups.values():
            group.leases.clear()
            group.done.clear()

    def _end_age(self, power_cut: bool) -> None:
        if self.ages.end_process(power_cut):
            for sent in self.sent.values():
                sent.once = False  # the windows of ids have ended, too

    def _unlink(self, sent: Sent, place: Place) -> None:
        offsets = self.by_key.get((place[0], place[1], sent.key))
        if offsets and place[2] in offsets:
            offsets.remove(place[2])

    # -- sending

    def send(self, sent: Sent) -> Sent:
        """Note a message before it is sent for the first time."""
        sent.sent_ms = self.world.now_ms
        self.sent[sent.name] = sent
        return sent

    def stored(self, sent: Sent, place: Place, durable: bool) -> None:
        """An answer says that the message is stored, now or before, at this place."""
        if sent.state == "refused":
            raise Broken(f"{sent.name}: refused, later found stored at {place}")
        sent.state, sent.durable, sent.place = "kept", sent.durable or durable, place
        self._bind(place, sent)

    def refused(self, sent: Sent, code: int) -> None:
        """An answer says that the message is not stored, or (3xx) that this is unknown."""
        if code // 100 != 3 and sent.state == "open":
            sent.state = "refused"

    def _bind(self, place: Place, sent: Sent) -> None:
        known = self.names.get(place)
        if known is None:
            self.names[place] = sent.name
            if self._unborn.pop(place[:2], None) is not None:
                # Noted here, too: once the disk reads again, the bounds begin where they began before.
                self.begins[place[:2]] = max(place[2], self.begins.get(place[:2], 0))
            if sent.key:
                self.by_key.setdefault((place[0], place[1], sent.key), []).append(place[2])
        elif known != sent.name:
            raise Broken(f"{place}: has two messages, {known} and {sent.name}")

    # -- retention

    def may_be_gone(self, sent: Sent, place: Place | None) -> bool:
        """Whether the message's retention may have deleted it by now."""
        if self.ages.is_past(sent.topic, sent.sent_ms, sent.due_ms):
            return True
        size_bytes = self.ages.size_min(sent.topic)
        return bool(size_bytes) and self._bytes_from(sent, place) > size_bytes // self._queues(sent.topic)

    def _may_be_gone_at(self, place: Place) -> bool:
        name = self.names.get(place)
        return self._is_deleted(place) or (name is not None and self.may_be_gone(self.sent[name], place))

    def _is_deleted(self, place: Place) -> bool:
        """Whether a full disk has deleted the message's segment."""
        store = self.deletes_early and self.engine.node and self.engine.node.store
        topic = store.topic(place[0]) if store else None
        return bool(store and topic and place[2] < store.bounds(topic.id, place[1])[0])

    def _queues(self, topic: str) -> int:
        found = self.engine.node and self.engine.node.store.topic(topic)
        return found.queues if found else 1 << 16

    def _bytes_from(self, sent: Sent, place: Place | None) -> int:
        """Most bytes that its queue may have from the message's batch on. Delayed ones may all be in one batch."""
        first = -1 if place is None or sent.due_ms else place[2] - BATCH_MESSAGES_MAX
        total = 0
        for found, name in self.names.items():
            if place is None or (found[:2] == place[:2] and found[2] > first):
                total += len(self.sent[name].message) + RECORD_BYTES
        bound = set(self.names.values())
        for other in self.sent.values():
            if other.topic == sent.topic and other.name not in bound and other.state != "refused":
                total += len(other.message) + RECORD_BYTES
        return total

    # -- delivery

    def on_the_way(self, group_name: str, place: Place) -> None:
        """A message was put into a frame, which may or may not arrive."""
        frames = self.groups[group_name].frames
        frames[place] = frames.get(place, 0) + 1

    def deliver(
        self, group_name: str, place: Place, message: bytes, attempt: int, stored_at_ms: int, lease: LastLease, sent_ms: int
    ) -> Sent:  # fmt: skip
        """Check a delivery, which left the engine at `sent_ms`; returns the message's sending."""
        self.deliveries += 1
        group = self.groups[group_name]
        rules = group.rules
        sent = self._sent_of(message, place)
        self._bind(place, sent)
        if sent_ms > self.paused.get(group_name, sent_ms) + PAUSE_MS:
            raise Broken(
                f"group={group_name}: was paused {sent_ms - self.paused[group_name]} ms ago and got {sent.name}"
            )
        if rules.paused and self.definitions_hold:
            raise Broken(f"group={group_name}: is paused and got {sent.name}")
        if rules.tags and sent.tag not in rules.tags and self.definitions_hold:
            raise Broken(f"group={group_name}: its filter is {rules.tags}, and it got {sent.name} with tag {sent.tag}")
        if attempt > group.frames.get(place, 0):
            raise Broken(f"group={group_name} {sent.name}: attempt {attempt} after {group.frames.get(place, 0)} frames")
        if sent.due_ms and stored_at_ms < sent.due_ms:
            raise Broken(f"{sent.name}: due at {sent.due_ms}, fired at {stored_at_ms}")
        if sent.cancelled == "kept" and not self.is_damaged:
            raise Broken(f"{sent.name}: cancelled and delivered")
        self._check_lease(group, place, sent, lease, sent_ms)
        if rules.order != "none" and self.definitions_hold and not self.deletes_early:
            self._check_order(group, place, sent, lease)
            # The window for late senders ends by the clock, too, and keys move only once the order is known.
            if place[0] in self.queues and sent.key and self.moves_hold and not (self.clock_steps or self.one_range):
                self._check_moves(group, place, sent)
        group.delivered.add(sent.name)
        return sent

    def _sent_of(self, message: bytes, place: Place) -> Sent:
        found = NAME.search(message)
        sent = self.sent.get(found[2].decode()) if found else None
        if found is None or sent is None:
            raise Broken(f"{place}: delivers bytes that nobody has sent: {message[:80]!r}")
        if sent.topic != place[0]:
            raise Broken(f"{place}: delivers {sent.name}, which was sent to topic {sent.topic}")
        if sent.message != message:
            raise Broken(f"{place}: delivers {sent.name} with other bytes than were sent")
        if sent.state == "refused":
            raise Broken(f"{place}: delivers {sent.name}, whose answer said that it is not stored")
        return sent

    def _check_lease(self, group: GroupHistory, place: Place, sent: Sent, lease: LastLease, sent_ms: int) -> None:
        if lease.stamp != self.stamp(group) or group.reset_in == self.process:
            return
        if group.done.get(place) == lease.stamp:
            raise Broken(f"group={group.rules.name}: acknowledged {sent.name} and got it again at {place}")
        last = group.leases.get(place)
        if last is not None and last.stamp == lease.stamp and sent_ms < last.until_ms:
            raise Broken(
                f"group={group.rules.name} {sent.name}: leased to {last.consumer} for {last.until_ms - sent_ms} ms more, "
                f"and delivered to {lease.consumer}"
            )
        group.leases[place] = lease

    def _check_order(self, group: GroupHistory, place: Place, sent: Sent, lease: LastLease) -> None:
        """Every earlier message of the key has to be settled.

        Until the configuration is read, a queue's messages are delivered one range at a time, whatever their keys.
        """
        topic, queue, offset = place
        earlier = self.by_key.get((topic, queue, sent.key), []) if sent.key else []
        for at in earlier:
            if self.one_range and group.leases.get((topic, queue, at)) is lease:
                continue
            if at < offset and self.names.get((topic, queue, at)) not in group.settled:
                if self.may_be_gone(self.sent[self.names[topic, queue, at]], (topic, queue, at)):
                    continue
                if (topic, queue, at) in group.passed_over and self.names[topic, queue, at] in self.unread:
                    continue  # it came back when a later start could read it
                raise Broken(
                    f"group={group.rules.name}: {sent.name} at {place} before {self.names.get((topic, queue, at))} at {at}"
                )

    def _check_moves(self, group: GroupHistory, place: Place, sent: Sent) -> None:
        """After a growth, what the same sender sent earlier under the key has to be settled in the key's other queues."""
        topic, queue, _ = place
        for other in range(self.queues[topic]):
            for at in self.by_key.get((topic, other, sent.key), []) if other != queue else ():
                earlier = self.sent[self.names[topic, other, at]]
                if (
                    earlier.order < sent.order
                    and earlier.name.partition("#")[0] == sent.name.partition("#")[0]
                    and earlier.name not in group.settled
                    and not self.may_be_gone(earlier, (topic, other, at))
                    and not (earlier.name in self.unread and (topic, other, at) in group.passed_over)
                ):
                    raise Broken(
                        f"group={group.rules.name}: {sent.name} at {place} before {earlier.name} in queue {other} at {at}"
                    )

    # -- acknowledgements

    def acknowledges(self, group_name: str, place: Place, verdict: int, sent: Sent) -> tuple[int, int]:
        """A client sends its verdict; returns the stamp of this time."""
        group = self.groups[group_name]
        if verdict == layout.DONE:
            group.settled.add(sent.name)
        elif verdict == layout.REJECT:
            group.rejected.add(sent.name)
            group.settled.add(sent.name)
        if verdict != layout.EXTEND:
            group.leases.pop(place, None)
        return self.stamp(group)

    def acknowledged(
        self, group_name: str, place: Place, verdict: int, code: int, lease: LastLease, sent_ms: int
    ) -> None:
        """The verdict was answered. `lease`: the one that it belongs to; it was sent at `sent_ms`."""
        group = self.groups[group_name]
        if lease.stamp != self.stamp(group):
            return
        if code == layout.OK:
            if verdict == layout.DONE:
                group.done[place] = lease.stamp
        elif sent_ms < lease.until_ms - 20 and not self._may_be_gone_at(place):
            raise Broken(
                f"group={group_name} {place}: verdict {verdict} within its lease was refused with code {code}, "
                f"{lease.until_ms - sent_ms} ms before its end"
            )

    def reset(self, group_name: str) -> None:
        """An operator begins to reset the group, or has ended it."""
        group = self.groups[group_name]
        group.resets += 1
        group.reset_in = None if group.reset_in == self.process else self.process
        group.done.clear()
        group.leases.clear()

    def forget_leases(self) -> None:
        """Promise nothing about the leases so far."""
        for group in self.groups.values():
            group.leases.clear()
