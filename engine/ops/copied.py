"""COPY, SOURCE_STATE and SOURCE_ACCEPT: records of a foreign source. Design: docs/design/0036-copied-batches.md."""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog
from engine.delivery.topic_uses import TopicUses
from engine.env.native import NodeClock
from engine.errors import EngineError, NotMasterError, UnknownTopicError
from engine.link import layout
from engine.link.append import APPEND_HEAD
from engine.link.codes import SOURCE_MOVED
from engine.link.copy import (
    IDENTITY_SIZE_MAX,
    OFFSET_END,
    QUEUES_PER_REQUEST_MAX,
    REASON_BYTES_MAX,
    Copied,
    CopyPart,
    ForeignSource,
    QueueSource,
    SourceState,
    decode_parts,
    encode_copied,
    shown_state,
)
from engine.link.operations import COPY, SOURCE_ACCEPT, SOURCE_STATE
from engine.log import Log
from engine.log.types import Topic
from engine.ops.checks import checked_stored_name, is_whole, json_answer, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.ops.stored import StoredWaits

log = LimitedLog(logging.getLogger("penstock.engine"))
Handler = Callable[[Peer, int, bytes], None]
COPY_RULE = "COPY: durability 1..4 and a count of parts from 1 on, then the parts"
STATE_RULE = 'SOURCE_STATE: send a JSON object {"queues": [[topic, queue], ...]}'
ACCEPT_RULE = (
    'SOURCE_ACCEPT: send a JSON object {"durability", "topic", "queue", "identity", "partition", "start", "replaces", '
    '"reason"[, "next"]}'
)


def renumber_doubtful(store: Log, now_ms: int) -> None:
    """Give sources a new number where a start has found copied batches that do not count, so that they never will.

    Before anything else is appended: a checkpoint above the damage makes the next start believe what follows it.

    Raises DiskFullError: the engine must not serve.
    """
    for topic_id, queue in sorted(store.doubtful):
        state, sources = store.copied.state(topic_id, queue), store.copied.sources(topic_id, queue)
        if not state.number or store.topic_by_id(topic_id) is None:
            continue
        log.error(
            "topic=%d queue=%d: a power cut has taken a part of what was copied: the copy goes on at offset %d of its "
            "source, and what is stored above that comes again", topic_id, queue, state.next,
        )  # fmt: skip
        store.copied.accept(
            topic_id, queue, sources[-1].source, start=state.next, replaces=state.number,
            end=store.bounds(topic_id, queue)[1], reason="a power cut has taken a part of what was copied", now_ms=now_ms,
        )  # fmt: skip
    store.doubtful.clear()


class CopiedOps:
    """Serves the copiers.

    Args:
        on_appended: called after records were appended, so that waiting pulls get them.
        uses: notes that the topics are in use.
    """

    def __init__(
        self, store: Log, clock: NodeClock, on_appended: Callable[[], None], stored: StoredWaits, uses: TopicUses
    ) -> None:
        renumber_doubtful(store, clock.wall_ms())
        self._store, self._clock, self._on_appended, self._stored, self._uses = store, clock, on_appended, stored, uses

    def handlers(self) -> dict[int, Handler]:
        """By operation."""
        return {COPY: self.copy, SOURCE_STATE: self.state, SOURCE_ACCEPT: self.accept}

    def copy(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Append the parts, in order; answered as an APPEND of that durability is.

        A part that is not stored does not stop the next ones: they fit only if they do not continue it.
        """
        if len(payload) < APPEND_HEAD.size:
            raise RequestError(COPY_RULE)
        durability, count = APPEND_HEAD.unpack_from(payload)
        if not layout.MEMORY <= durability <= layout.REPLICATED_FSYNC or not count:
            raise RequestError(COPY_RULE)
        parts = list(decode_parts(payload, count))
        results = self._append(parts)
        end = self._store.end_position

        def answer() -> None:
            peer.send_frame(COPY, request_id, layout.OK, [encode_copied(results, end)])

        self._answer(durability, answer)
        self._on_appended()

    def state(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Answer how far the sources of queues are copied, once that is on this engine's disk.

        A copier goes on under what it is told. A power cut that took a SOURCE_ACCEPT, and left what was copied under it,
        would leave that to the source before.
        """
        listed = json_object(payload, STATE_RULE).get("queues")
        if not isinstance(listed, list):
            raise RequestError(STATE_RULE)
        if len(listed) > QUEUES_PER_REQUEST_MAX:
            raise RequestError(f"SOURCE_STATE: {len(listed)} queues: send at most {QUEUES_PER_REQUEST_MAX} per request")
        states = []
        for each in listed:
            if not isinstance(each, list) or len(each) != 2:
                raise RequestError(STATE_RULE)
            states.append(shown_state(self._state(self._topic(*each), each[1])))
        self._answer_from_disk(peer, SOURCE_STATE, request_id, {"states": states}, everywhere=False)

    def accept(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Accept a source for a queue; answered with the queue's state once that is as durable as asked, and on this disk.

        With a `next` that the queue must have, first wait until all that is stored is on the disks: a power cut could
        take the last copied records otherwise, and leave the record by which nobody copies them again.
        """
        asked = json_object(payload, ACCEPT_RULE)
        durability, queue = asked.get("durability"), asked.get("queue")
        if not is_whole(durability, layout.MEMORY, layout.REPLICATED_FSYNC):
            raise RequestError(ACCEPT_RULE)
        topic = self._topic(asked.get("topic"), queue)
        start, replaces = asked.get("start"), asked.get("replaces")
        where = f'topic "{topic.name}" queue {queue}'
        if not is_whole(start, 0, OFFSET_END - 1):
            raise RequestError(f"{where}: start {shown(start)}: use an offset of the source, from 0 on")
        if not is_whole(replaces, 0, 0xFFFFFFFE):
            raise RequestError(f"{where}: replaces {shown(replaces)}: use the number of the queue's source, 0 for none")
        next_offset = asked.get("next")
        if next_offset is not None and not is_whole(next_offset, 0, OFFSET_END):
            raise RequestError(f"{where}: next {shown(next_offset)}: use the queue's next offset, or leave it out")
        assert type(queue) is int
        source, reason = _source(where, asked), _reason(where, asked.get("reason"))

        def accept() -> None:
            self._store.copied.accept(
                topic.id, queue, source, start=start, replaces=replaces, end=self._store.bounds(topic.id, queue)[1],
                reason=reason, now_ms=self._clock.wall_ms(), next_offset=next_offset,
            )  # fmt: skip
            found = {"states": [shown_state(self._state(topic, queue))]}
            self._answer_from_disk(peer, SOURCE_ACCEPT, request_id, found, durability == layout.REPLICATED_FSYNC)

        def accept_late() -> None:
            try:
                if self._store.topic_by_id(topic.id) is None:
                    raise UnknownTopicError(f"{where}: the topic was removed meanwhile")
                accept()
            except EngineError as error:
                log.warning("SOURCE_ACCEPT refused: %s", error)
                peer.send_frame(SOURCE_ACCEPT, request_id, error.code, [str(error).encode()])

        if next_offset is None:
            accept()
        else:
            self._stored.when(self._store.end_position, accept_late, True)

    def _append(self, parts: list[CopyPart]) -> list[Copied]:
        results = []
        for part in parts:
            try:
                result = self._store.copied.append(part, self._clock.wall_ms())
            except EngineError as error:
                log.warning("COPY refused: %s", error)
                if isinstance(error, NotMasterError) or len(parts) == 1:
                    raise
                result = Copied(error.code, 0, 0, 0)
            if result.code == SOURCE_MOVED:
                log.info("COPY: a batch is not what its queue expects: next=%d number=%d", result.next, result.number)
            elif result.code == layout.OK:
                self._uses.note((part.topic_id,))
            results.append(result)
        return results

    def _answer(self, durability: int, answer: Callable[[], None]) -> None:
        if self._stored.waits(durability):
            self._stored.when(self._store.end_position, answer, durability == layout.REPLICATED_FSYNC)
        else:
            answer()

    def _answer_from_disk(self, peer: Peer, op: int, request_id: int, answer: object, everywhere: bool) -> None:
        """Answer once all that is stored is on this engine's disk, or on those of all members."""
        payload = json_answer(answer)
        self._stored.when(
            self._store.end_position, lambda: peer.send_frame(op, request_id, layout.OK, payload), everywhere
        )

    def _topic(self, name: object, queue: object) -> Topic:
        checked = checked_stored_name(name)
        topic = self._store.topic(checked)
        if topic is None:
            raise RequestError(f'topic "{checked}": this engine has no such topic', layout.UNKNOWN_TOPIC)
        if not is_whole(queue, 0, topic.queues - 1):
            raise RequestError(f'topic "{checked}": queue {shown(queue)}: use 0..{topic.queues - 1}')
        return topic

    def _state(self, topic: Topic, queue: int) -> SourceState:
        state, sources = self._store.copied.state(topic.id, queue), self._store.copied.sources(topic.id, queue)
        return SourceState(topic.id, *state, [QueueSource(*each) for each in sources])


def _source(where: str, asked: dict[str, object]) -> ForeignSource:
    identity, partition = asked.get("identity"), asked.get("partition")
    try:
        found = bytes.fromhex(identity) if isinstance(identity, str) else b""
    except ValueError:
        found = b""
    if not 1 <= len(found) <= IDENTITY_SIZE_MAX:
        raise RequestError(f"{where}: identity {shown(identity)}: use 1 to {IDENTITY_SIZE_MAX} bytes in hexadecimal")
    if not is_whole(partition, 0, 0xFFFFFFFF):
        raise RequestError(f"{where}: partition {shown(partition)}: use a number from 0 on")
    return ForeignSource(found, partition)


def _reason(where: str, reason: object) -> str:
    if not isinstance(reason, str) or not 1 <= len(reason.encode("utf-8", "replace")) <= REASON_BYTES_MAX:
        raise RequestError(f"{where}: reason {shown(reason)}: use a text of 1 to {REASON_BYTES_MAX} bytes")
    return reason.encode("utf-8", "replace").decode()
