"""Kafka clusters as targets: their messages go to the Kafka bridge, which holds the clients of the clusters.

See docs/design/0034-kafka.md and 0040-kafka-natively.md. Whole calls to one cluster take the hot path through its lane, all
others the rare path. A proxy without such a topic opens no link.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gevent

from common.config.definitions import GRADES, TopicDefinition
from common.contract import Code, Durability, Message, decode_struct
from common.readiness import Note
from common.wire.calls import HAS_PROPERTIES
from common.wire.calls import Message as WalkedMessage
from engine.client.durability import number_of
from engine.client.rpc import RpcClient
from engine.link.codes import OK
from engine.link.errors import LinkDown
from engine.link.operations import PRODUCE
from engine.link.produce import ANY_PARTITION, RESERVED_PREFIX, ProducedMessage, decode_produced, encode_produce
from producer_proxy.targets.base import (
    STORED,
    AllStored,
    Asker,
    MessageSlice,
    OnOutcomes,
    Outcome,
    SendTarget,
    ToldOutcome,
)
from producer_proxy.targets.kafka_copies import count_copies, stored_copies
from producer_proxy.targets.kafka_hot import KafkaHotTopics
from producer_proxy.targets.native import KafkaLane

PATIENCE_S = 3.0
"""Time in which the bridge hands a message to Kafka's client; after it the message is UNAVAILABLE."""
PATIENCE_MS = int(PATIENCE_S * 1000)
OVERDUE_S = PATIENCE_S + 1.0
"""Age of a request without an answer from which on no other one is sent to the cluster."""
SILENT_S = 40.0
"""Age at which the bridge itself must hang, since Kafka's client gives every record its result in 30 s."""
LOOK_S = 0.05
UNANSWERED_BYTES_MAX = 32 << 20
REQUEST_BYTES_MAX = 4 << 20
ON_DISK = frozenset((Durability.FSYNC, Durability.REPLICATED_FSYNC))
SETTLED_S = 35.0
"""The bridge's patience, the 30 s of Kafka's client, and a margin."""
AWAY = "the Kafka bridge cannot be reached; nothing was stored"
NO_BRIDGE = "this proxy has no Kafka bridge: start it with --kafka-bridge; nothing was stored"
LANE_OPEN, LANE_FULL, LANE_AWAY = 0, 1, 2
"""As in _kafka_lane.pxd."""
LOST = "the link to the Kafka bridge broke; the message may be stored, send again with the same id"


class KafkaDestination(NamedTuple):
    """A topic whose home is a Kafka cluster."""

    name: str
    queues: int
    durability: int
    grade: int


class OpenProduce:
    """A request that the bridge has not answered. Its parts get their outcomes once, at the answer or when it is overdue."""

    __slots__ = ("is_settled", "parts", "size", "started")

    def __init__(self, parts: Sequence[tuple[int, OnOutcomes]], size: int) -> None:
        self.parts, self.size, self.started, self.is_settled = parts, size, time.monotonic(), False

    def settle(self, outcomes: Sequence[ToldOutcome]) -> None:
        if self.is_settled:
            return
        self.is_settled = True
        at = 0
        for count, on_outcomes in self.parts:
            on_outcomes(outcomes[at : at + count])
            at += count

    def expire(self, now: float) -> None:
        """Nothing: the greenlets of the calls wait no longer than they may."""

    def settle_all(self, code: int, sentence: str) -> None:
        self.settle(refused(sum(count for count, _ in self.parts), code, sentence))


class KafkaTarget(SendTarget):
    """One cluster.

    Args:
        link: to the bridge, shared by all clusters; None: this proxy has no bridge.
        hot: makes topics known to the hot path, which then gives whole calls to `lane`; None: every call is rare.
    """

    settled_after_s = SETTLED_S
    takes_encoded = True

    def __init__(self, cluster: str, link: RpcClient | None, hot: KafkaHotTopics | None = None) -> None:
        self.cluster, self.name, self._link = cluster, f"kafka:{cluster}", link
        self._hot = hot
        self.lane: Any = KafkaLane(self, PATIENCE_MS, LOST) if KafkaLane is not None and hot is not None else None
        self._waiting: list[tuple[Sequence[MessageSlice], OnOutcomes]] = []
        self._open: dict[int, Any] = {}  # OpenProduce, or the lane's HotProduce
        self._last = self.unanswered_bytes = 0
        self._looking: Any = None

    def resolve(
        self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker
    ) -> dict[str, KafkaDestination]:
        if self._hot is not None and self.lane is not None:
            self._hot.learn(self.name, self.lane, definitions, generation)
        return {
            name: KafkaDestination(name, each.queues, number_of(each.durability), GRADES.index(each.grade))
            for name, each in definitions.items()
        }

    def served_as(self, durability: int) -> int:
        """Of every class: acks=all is memory of all in-sync replicas."""
        return number_of("replicated")

    def objection(self, message: WalkedMessage, durability: int) -> str | None:
        if durability in ON_DISK:
            return (
                f"SendRequest.durability: topic={message.topic}: its home {self.name} says nothing about disks: "
                "use MEMORY or REPLICATED, or leave it unset"
            )
        if message.flags & HAS_PROPERTIES and RESERVED_PREFIX.encode() in message.encoded:
            names = decode_struct(Message, message.encoded).properties or {}
            if wrong := next((name for name in names if name.startswith(RESERVED_PREFIX)), None):
                return f'Message.properties: "{wrong}": names that begin with {RESERVED_PREFIX} are reserved on a Kafka home'
        return None

    def admits(self, durability: int, destination: Any, key: bytes | int | None, taken: int, asked: int) -> bool:
        return not self.up or self.unanswered_bytes < UNANSWERED_BYTES_MAX

    def state(self) -> int:
        """For the lane: whether it may take a call now."""
        if self._fault():
            return LANE_AWAY
        return LANE_OPEN if self.unanswered_bytes < UNANSWERED_BYTES_MAX else LANE_FULL

    def flush_soon(self) -> None:
        """For the lane: send what it has at the end of this turn."""
        gevent.get_hub().loop.run_callback(self.flush_lane)

    def flush_lane(self) -> None:
        """Send what the lane has."""
        if self.lane is not None and not self.lane.is_empty:
            payload, request = self.lane.take(self.cluster)
            self._post(payload, request, request.read)

    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> bool:
        if fault := self._fault():
            on_outcomes(refused(len(messages), Code.UNAVAILABLE, fault))
            return False
        if not self._waiting:
            gevent.get_hub().loop.run_callback(self._flush)  # one request for all calls of a turn
        self._waiting.append((messages, on_outcomes))
        return True

    def submit_encoded(
        self, encode: Callable[[str, int], bytes], count: int, size: int, all_stored: AllStored, on_outcomes: OnOutcomes
    ) -> None:
        if fault := self._fault():
            on_outcomes(refused(count, Code.UNAVAILABLE, fault))
            return

        def read(code: int, payload: bytes) -> Sequence[ToldOutcome]:
            if code == OK and all_stored(payload, count):
                return [STORED] * count
            return _outcomes(code, payload, count)

        self._post(encode(self.cluster, PATIENCE_MS), OpenProduce([(count, on_outcomes)], size), read)

    def stored_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[Outcome]:
        return stored_copies(self._link, self.cluster, messages, shown_ids, since_ms, deadline_s)

    def count_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[int | None]:
        return count_copies(self._link, self.cluster, messages, shown_ids, since_ms, deadline_s)

    @property
    def up(self) -> bool:
        return not self._fault()

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._open and (self.lane is None or self.lane.is_empty)

    def sent_mark(self) -> float:
        """The number of the newest request, once all that was submitted is in one."""
        self._flush()
        self.flush_lane()
        return self._last

    def is_sent(self, mark: float) -> bool:
        """Whether the bridge has answered these requests, or the link has broken: an outcome of TIMEOUT is no answer."""
        return not self._open or next(iter(self._open)) > mark

    def health(self) -> bool | str:
        return Note(fault) if (fault := self._fault()) else True

    def close(self) -> None:
        """Open messages get TIMEOUT; the link is its owner's."""
        self.flush_lane()
        self._settle_open(lambda each: True, "this proxy stops; the message may be stored")
        if self._looking is not None:
            self._looking.stop()

    def _fault(self) -> str:
        """Why no message can be sent now; empty: they can."""
        if self._link is None:
            return NO_BRIDGE
        if not self._link.connected:
            return AWAY
        oldest = next(iter(self._open.values()), None)
        if oldest is not None and (age_s := time.monotonic() - oldest.started) > OVERDUE_S:
            return f"Kafka cluster {self.cluster} has not answered for {age_s:.0f} s; nothing was stored"
        return ""

    def _flush(self) -> None:
        """Send what waits, in requests of bounded size."""
        waiting, self._waiting = self._waiting, []
        taken: list[tuple[Sequence[MessageSlice], OnOutcomes]] = []
        size = 0
        for each in waiting:
            taken.append(each)
            size += sum(len(message.encoded) for message in each[0])
            if size >= REQUEST_BYTES_MAX:
                self._send(taken, size)
                taken, size = [], 0
        if taken:
            self._send(taken, size)

    def _send(self, taken: Sequence[tuple[Sequence[MessageSlice], OnOutcomes]], size: int) -> None:
        topics: dict[str, int] = {}
        messages = [
            ProducedMessage(
                topics.setdefault(destination.name, len(topics)),
                key if isinstance(key, int) else ANY_PARTITION,
                assigned_id,
                encoded,
            )
            for slices, _ in taken
            for destination, key, assigned_id, encoded in slices
        ]
        request = OpenProduce([(len(slices), on_outcomes) for slices, on_outcomes in taken], size)
        payload = encode_produce(self.cluster, list(topics), PATIENCE_MS, messages)
        self._post(payload, request, lambda code, answer: _outcomes(code, answer, len(messages)))

    def _post(self, payload: bytes, request: Any, read: Callable[[int, bytes], Any]) -> None:
        self._last = number = self._last + 1
        size = request.size

        def on_answer(code: int, answer: bytes) -> None:
            outcomes = read(code, answer)
            if self._open.pop(number, None) is not None:
                self.unanswered_bytes -= size
                if not self._open:
                    self._looking.stop()  # else the timer wakes an idle process
            request.settle(outcomes)

        self._open[number] = request
        self.unanswered_bytes += size
        try:
            assert self._link is not None
            self._link.send(PRODUCE, payload, on_answer)
        except LinkDown:
            del self._open[number]
            self.unanswered_bytes -= size
            request.settle_all(Code.UNAVAILABLE, AWAY)
        else:
            self._look_later()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = gevent.get_hub().loop.timer(LOOK_S, LOOK_S)
        if not self._looking.active:
            self._looking.start(self._look)

    def _look(self) -> None:
        """Give TIMEOUT to overdue requests; open another link when the bridge has been silent for too long."""
        now = time.monotonic()
        for each in list(self._open.values()):
            each.expire(now)
        self._settle_open(
            lambda each: now - each.started > OVERDUE_S,
            f"Kafka cluster {self.cluster} did not answer in time; the message may be stored",
        )
        oldest = next(iter(self._open.values()), None)
        if oldest is None:
            self._looking.stop()
        elif now - oldest.started > SILENT_S and self._link is not None:
            self._link.reconnect("the Kafka bridge does not answer")

    def _settle_open(self, wanted: Callable[[Any], bool], sentence: str) -> None:
        for each in list(self._open.values()):
            if not each.is_settled and wanted(each):
                each.settle_all(Code.TIMEOUT, sentence)


def refused(count: int, code: int, sentence: str) -> list[ToldOutcome]:
    """The same outcome for every message."""
    return [(int(code), None, None, sentence)] * count


def _outcomes(code: int, payload: bytes, count: int) -> list[ToldOutcome]:
    """Outcomes from an answer. The offset is Kafka's, so nobody is told it. Raises PayloadError."""
    if code != OK:
        return refused(count, Code.TIMEOUT, LOST)
    return [
        (found, partition, None) if found == Code.OK else (found, None, None, sentence)
        for found, partition, _, sentence in decode_produced(payload, count)
    ]
