"""Copiers of foreign sources, zombies among them, and what must hold of what they have copied.

A source is a function: it has a record at most offsets, and none at the others, as a Kafka partition after compaction.
"""

import json
from typing import TYPE_CHECKING

from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.link import layout
from engine.link.batch import encode_copied_batch
from engine.link.codes import SOURCE_MOVED
from engine.link.copy import (
    CopyPart,
    ForeignSource,
    SourceState,
    decode_copied,
    decode_states,
    encode_accept,
    encode_copy,
    encode_state_question,
)
from engine.link.operations import COPY, SOURCE_ACCEPT, SOURCE_STATE
from engine.link.record import encode_copied_record, read_record
from tests.sim.clients import TAGS, Client, encode_topics, string
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link
from tests.sim.sent import Broken, Sent

if TYPE_CHECKING:
    from engine.log import Log

TOPIC, QUEUES = "copied", 2
AT_ONCE_MAX = 3
"""Batches in flight of one copier."""

ACCEPT_SHARE, PASS_SHARE = 0.02, 0.3


def has_record(offset: int) -> bool:
    """Whether a source has a record at that offset."""
    return offset % 7 != 3 and offset % 50 < 45


def record_of(history: History, source: ForeignSource, offset: int) -> Sent:
    """The message that is copied from there; always the same one."""
    name = f"copied-{source.identity.decode()}-{source.partition}#{offset}"
    found = history.sent.get(name)
    if found is None:
        tag = TAGS[offset % len(TAGS)]
        body = f"|{TOPIC}|{name}|".encode() + b"y" * (offset * 37 % 300)
        found = history.send(Sent(TOPIC, name, offset, string(2, body) + string(4, tag.encode()) + b"\0", b"", tag))
    return found


class Copier(Client):
    """Copies one queue's source. Several of them copy the same one.

    Args:
        is_zombie: it sleeps for long, and after it believes what it knew before, whatever became of its link.
    """

    def __init__(
        self, engine: Engine, name: str, history: History, queue: int, pause_ms: int, durability: tuple[int, ...],
        is_zombie: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(engine, name, history)
        self.queue, self.pause_ms, self.durability, self.is_zombie = queue, pause_ms, durability, is_zombie
        self.state: SourceState | None = None
        self.next = 0
        self._in_flight = 0

    def on_ready(self, link: Link) -> None:
        self._in_flight = 0
        if not self.is_zombie:
            self.state = None
        link.ask(
            layout.TOPIC, encode_topics([(TOPIC, QUEUES)]), lambda code, payload: self._on_topic(link, code, payload)
        )

    def _on_topic(self, link: Link, code: int, payload: bytes) -> None:
        if code == layout.OK:
            self.history.shown[json.loads(payload)["topics"][0]["id"]] = TOPIC
        self._later(link)

    def _later(self, link: Link) -> None:
        pause_ms = 1_500 if self.is_zombie else self.pause_ms
        self.world.after(self.random.randint(1, 2 * pause_ms), lambda: self._work(link))

    def _work(self, link: Link) -> None:
        if self.stopped or link.closed:
            return
        if self.state is None:
            question = encode_state_question([(TOPIC, self.queue)])
            link.ask(SOURCE_STATE, question, lambda code, payload: self._on_state(link, code, payload))
        elif (
            self.state.number
            and self._in_flight == 0
            and self.random.random() < PASS_SHARE
            and not has_record(self.next)
        ):
            self._pass_over(link, self.state)
        elif not self.state.number or (not self.is_zombie and self.random.random() < ACCEPT_SHARE):
            self._accept(link, self.state.number)
        else:
            while self._in_flight < AT_ONCE_MAX and self.random.random() < 0.7:
                self._copy(link, self.state)
            self._later(link)

    def _accept(self, link: Link, replaces: int) -> None:
        source = ForeignSource(b"cluster-%d" % (replaces + 1), self.queue)
        asked = encode_accept(self.random.choice(self.durability), TOPIC, self.queue, source, 0, replaces, self.name)
        link.ask(SOURCE_ACCEPT, asked, lambda code, payload: self._on_state(link, code, payload))

    def _pass_over(self, link: Link, state: SourceState) -> None:
        """Go on at a later offset of the same source, up to its next record."""
        start = self.next + 1
        while not has_record(start) and self.random.random() < 0.7:
            start += 1
        assert state.source is not None
        asked = encode_accept(
            self.random.choice(self.durability), TOPIC, self.queue, state.source, start, state.number, self.name,
            self.next,
        )  # fmt: skip
        link.ask(SOURCE_ACCEPT, asked, lambda code, payload: self._on_state(link, code, payload))

    def _on_state(self, link: Link, code: int, payload: bytes) -> None:
        self.state = None
        if code == layout.OK:
            (self.state,) = decode_states(payload)
            self.next = self.state.next
        self._later(link)

    def _copy(self, link: Link, state: SourceState) -> None:
        """Send a batch; the next one continues it before this one is answered."""
        last = self.next + self.random.randint(1, 8)
        offsets = [offset for offset in range(self.next, last) if has_record(offset)]
        while not offsets or not has_record(last - 1):
            offsets += [last] * has_record(last)
            last += 1
        source = state.source
        assert source is not None
        records = [record_of(self.history, source, offset) for offset in offsets]
        packed = [encode_copied_record(sent.message, offset) for sent, offset in zip(records, offsets, strict=True)]
        part = CopyPart(source, self.next, encode_copied_batch(state.topic_id, self.queue, state.number, packed))
        self.next = offsets[-1] + 1
        durability = self.random.choice(self.durability)
        self._in_flight += 1
        link.ask(
            COPY, encode_copy(durability, [part]),
            lambda code, payload: self._on_copied(records, code, payload, durability == layout.FSYNC),
        )  # fmt: skip

    def _on_copied(self, records: list[Sent], code: int, payload: bytes, durable: bool) -> None:
        self._in_flight -= 1
        if code == layout.OK:
            (result,) = decode_copied(payload, 1)
            if result.code == layout.OK:
                for number, sent in enumerate(records):
                    self.history.stored(sent, (TOPIC, self.queue, result.first_offset + number), durable)
                return
            if result.code == SOURCE_MOVED and self.is_zombie and self.state and self.state.number == result.number:
                self.next = result.next
                return
        self.state = None  # ask again


def check_copied(store: "Log", may_lack: bool, was_torn: bool, may_repeat: bool) -> None:
    """Raise if a record was passed over, or is stored twice or out of order under one number of a source.

    Args:
        may_lack: retention or damage may have taken messages.
        was_torn: a power cut may have taken the last records of a source, and left the record that replaces it.
        may_repeat: a start without its state may have looked back from a queue's end over a batch that the disk could not
            read (0036, "What may be lost").
    """
    topic = store.topic(TOPIC)
    for queue in range(topic.queues if topic is not None else 0):
        assert topic is not None
        state, sources = store.copied.state(topic.id, queue), store.copied.sources(topic.id, queue)
        found = _stored(store, topic.id, queue)
        for at, source in enumerate(sources):
            following = sources[at + 1] if at + 1 < len(sources) else None
            end = following.first if following is not None else state.end
            offsets = [copied for offset, copied in found if source.first <= offset < end]
            where = f"topic={TOPIC} queue={queue} source={source.number}"
            if offsets != sorted(set(offsets)) and not may_repeat:
                raise Broken(f"{where}: records are copied twice or out of order: {offsets}")
            if following is None and offsets and offsets[-1] >= state.next:
                raise Broken(f"{where}: the next offset is {state.next}, and {offsets[-1]} is copied")
            below = offsets[-1] + 1 if offsets else 0
            if following is None:
                below = state.next
            elif following.source == source.source:
                below = following.start
            missing = [each for each in range(source.start, below) if has_record(each) and each not in set(offsets)]
            is_replaced = following is not None and following.source != source.source
            if missing and not may_lack and not (was_torn and is_replaced):
                raise Broken(f"{where}: the next offset is {below}, and {missing} were passed over")


def _stored(store: "Log", topic_id: int, queue: int) -> list[tuple[int, int]]:
    """(offset, source offset) of the copied records that can be read."""
    offset, end = store.bounds(topic_id, queue)
    found: list[tuple[int, int]] = []
    while offset < end:
        try:
            pieces = store.read(topic_id, queue, offset, 1000, 1 << 20)
        except (CorruptionError, OffsetOutOfRangeError) as gap:
            following = gap.next_offset if isinstance(gap, CorruptionError) else gap.first_offset
            if following is None or following <= offset:
                return found
            offset = following
            continue
        if not pieces:
            return found
        for piece in pieces:
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                if record.source_offset is not None:
                    found.append((piece.first_offset + number, record.source_offset))
        offset = pieces[-1].first_offset + pieces[-1].count
    return found
