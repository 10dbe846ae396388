"""Clients behind the simulated proxy: senders over its lanes, delayed messages, a group that pulls, a reader by position."""

from typing import TYPE_CHECKING

from common.keyhash import queue_of
from engine.client.append_request import Result, Waiter
from engine.client.durability import lane_of
from engine.delivery.receipt import topic_hash
from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.pull import decode_answer, encode_pull
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.timer import ANY_QUEUE, Timer, encode_add
from engine.log.format import split_records
from tests.sim.clients import string
from tests.sim.consumer import Record, records_of
from tests.sim.group.ledger import CLASSES, QUEUES, TIMERS, Class, Ledger, Place, SentMessage
from tests.sim.group.proxy import Proxy
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

WAITING_MAX = 200
KEYS = 3
INVISIBLE_MS = 3_000
TOPICS = [(each.topic, QUEUES) for each in CLASSES] + [(TIMERS, QUEUES)]


def record_of(id16: bytes, message: bytes) -> bytes:
    """A record as a lane takes it: with an assigned id."""
    body = bytes([layout.HAS_ID]) + id16 + message
    return layout.U32.pack(len(body)) + body


class GroupClient:
    """A client of the proxy."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster, self.world, self.name = cluster, cluster.world, name
        self.ledger: Ledger = cluster.ledger
        self.proxy: Proxy = cluster.proxy
        self.random = self.world.random_of(name)
        self.is_stopped = False

    def stop(self) -> None:
        """Begin nothing new."""
        self.is_stopped = True

    def message(self, topic: str, name: str, key: bytes, size: int) -> bytes:
        """Its encoded form."""
        body = f"|{topic}|{name}|".encode() + b"x" * size
        return string(2, body) + (string(3, key) if key else b"") + b"\0"


class GroupSender(GroupClient):
    """Sends single messages to the topic of one durability class.

    Args:
        pause_ms: average time between two of them.
    """

    def __init__(self, cluster: "Cluster", of: Class, pause_ms: int, bytes_max: int) -> None:
        super().__init__(cluster, f"to-{of.topic}")
        self._class, self._pause_ms, self._bytes_max = of, pause_ms, bytes_max
        self._lane = self.proxy.lanes[lane_of(of.durability)]
        self._number = 0
        self._orders: dict[bytes, int] = {}
        self._later()

    def _later(self) -> None:
        self.world.after(self.random.randint(1, 2 * self._pause_ms), self._next)

    def _next(self) -> None:
        if not self.is_stopped:
            for _ in range(self.random.randint(1, 3)):
                self._send()
            self._later()

    def _send(self) -> None:
        lane, destination = self._lane, self.proxy.destinations[self._class.topic]
        if not lane.up or not destination.topic_id or lane.waiting >= WAITING_MAX:
            return
        self._number += 1
        name = f"{self.name}#{self._number}"
        key = b"k%d" % self.random.randrange(KEYS) if self.random.random() < 0.7 else b""
        order = self._orders[key] = self._orders.get(key, 0) + 1
        queue = queue_of(key, QUEUES) if key else self.random.randrange(QUEUES)
        sent = self.ledger.send(self._class.topic, name, key, order, self.world.now_ms)
        message = self.message(self._class.topic, name, key, self.random.randint(0, self._bytes_max))

        def on_results(results: list[Result]) -> None:
            code, found, offset = results[0]
            self.ledger.answered(sent, code, (sent.topic, found, offset), self.world.now_ms)

        record = record_of(name.encode()[-16:].rjust(16, b"."), message)
        lane.add(destination, queue, record, Waiter(1, on_results), 0, True)


class GroupDelayedSender(GroupClient):
    """Adds delayed messages that fire within some seconds."""

    def __init__(self, cluster: "Cluster", pause_ms: int) -> None:
        super().__init__(cluster, "later")
        self._pause_ms, self._number = pause_ms, 0
        self._later()

    def _later(self) -> None:
        self.world.after(self.random.randint(1, 2 * self._pause_ms), self._next)

    def _next(self) -> None:
        if self.is_stopped:
            return
        topic_id = self.proxy.destinations[TIMERS].topic_id
        if topic_id and self.proxy.choice.master is not None:
            sent = [self._new() for _ in range(self.random.randint(1, 4))]
            timers = [self._timer(each, topic_id) for each in sent]
            self.proxy.ask(
                layout.TIMER_ADD, encode_add(layout.FSYNC, timers), lambda *answer: self._on_answer(sent, *answer)
            )
        self._later()

    def _new(self) -> SentMessage:
        self._number += 1
        sent = self.ledger.send(TIMERS, f"{self.name}#{self._number}", b"", 0, self.world.now_ms)
        sent.due_ms = self.world.now_ms + self.random.randint(0, 2_000)
        return sent

    def _timer(self, sent: SentMessage, topic_id: int) -> Timer:
        record = b"\1" + sent.name.encode()[-16:].rjust(16, b".") + self.message(TIMERS, sent.name, b"", 20)
        delay_ms = max(1, sent.due_ms - self.world.now_ms)
        return Timer(-delay_ms, topic_id, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, record)

    def _on_answer(self, sent: list[SentMessage], code: int, payload: bytes) -> None:
        if code == layout.OK:
            codes = [each[0] for each in layout.APPEND_RESULT.iter_unpack(payload)]
        else:
            codes = [code] * len(sent)
        for each, one in zip(sent, codes, strict=True):
            # Not sent again by the proxy; what a refusal of the whole request has done is not known to it.
            self.ledger.answered(each, one if one == layout.OK else layout.TIMEOUT, None, self.world.now_ms)


class GroupPuller(GroupClient):
    """One consumer of the group: pulls all topics, and acknowledges with its next pull."""

    def __init__(self, cluster: "Cluster", name: str, retry: float) -> None:
        super().__init__(cluster, name)
        self._hashes = {topic_hash(topic): topic for topic, _ in TOPICS}
        self._retry = retry
        self._pause_ms = 2 * cluster.scenario.pause_ms
        self.world.after(self.random.randint(0, 100), lambda: self._pull([]))

    def calm(self) -> None:
        """From now on acknowledge everything."""
        self._retry = 0.0

    def _pull(self, acks: list[tuple[Place, AckRange]]) -> None:
        if self.is_stopped:
            return
        request = encode_pull(
            "readers", TOPICS, max_messages=64, wait_ms=300, invisible_ms=INVISIBLE_MS, acks=[ack for _, ack in acks]
        )
        if not self.proxy.ask(layout.PULL, request, lambda *answer: self._on_answer(acks, *answer)):
            self.world.after(50, lambda: self._pull([]))

    def _on_answer(self, acks: list[tuple[Place, AckRange]], code: int, payload: bytes) -> None:
        if code != layout.OK:
            self.world.after(50, lambda: self._pull([]))
            return
        now_ms = self.world.now_ms
        codes, pieces = decode_answer(payload)
        for (place, ack), one in zip(acks, codes, strict=True):
            if one == layout.OK and ack.verdict == layout.DONE:
                self.ledger.done(place, now_ms)
        following = []
        for record in records_of(self._hashes, pieces):
            self.ledger.delivers(record.place, record.message, record.attempt, self.proxy.queued_ms)
            following.append((record.place, self._verdict(record)))
        self.world.after(self.random.randint(1, self._pause_ms), lambda: self._pull(following))

    def _verdict(self, record: Record) -> AckRange:
        if self.random.random() < self._retry:
            return AckRange(*record.receipt, 1, layout.RETRY, self.random.randint(0, 500))
        return AckRange(*record.receipt, 1, layout.DONE, -1)


class GroupReader(GroupClient):
    """Reads every queue by position from its start, without a hole.

    A power cut may take what it has read, and other messages may have those offsets then. So after all faults it begins
    again at the start, as often as it reaches the end, if the power of some machine was cut.
    """

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        self._next_offsets = {(topic, queue): 0 for topic, count in TOPICS for queue in range(count)}
        self._turn = 0
        self._is_calm = False
        self._chance = self.world.random_of(f"{name}'s broker")
        self.world.after(self.random.randint(0, 200), self._read)

    def calm(self) -> None:
        """No fault comes any more."""
        self._is_calm = True

    def _read(self) -> None:
        if self.is_stopped:
            return
        self._turn += 1
        topic, count = TOPICS[self._turn % len(TOPICS)]
        asked = [ReadPosition(topic, queue, self._next_offsets[topic, queue]) for queue in range(count)]
        question = ReadQuestion(asked, 64).encode()
        if self.cluster.scenario.slave_reads and self._chance.random() < 0.5:
            name = self._chance.choice(list(self.cluster.brokers))
            self.proxy.ask_broker(name, layout.READ, question, lambda *answer: self._on_answer(asked, name, *answer))
        elif not self.proxy.ask(layout.READ, question, lambda *answer: self._on_answer(asked, "", *answer)):
            self.world.after(100, self._read)

    def _on_answer(self, asked: list[ReadPosition], broker: str, code: int, payload: bytes) -> None:
        """The answer of a broker that was chosen by chance, or of the master, which has no name then."""
        self.world.after(self.random.randint(20, 20 + self.cluster.scenario.pause_ms), self._read)
        if code != layout.OK:
            return
        answer = ReadAnswer.decode(payload)
        pieces = list(answer.pieces())
        is_at_end = not pieces and all(report.code == layout.OK for report in answer.reports)
        if self._is_calm and self.ledger.faulted.cut and is_at_end:
            self._next_offsets.update({(each.topic, each.queue): 0 for each in asked})
            return
        for piece in pieces:
            messages = [bytes(each) for each in split_records(piece.records)]
            self._take(asked[0].topic, piece.queue, piece.first_offset, messages)
        for each, report in zip(asked, answer.reports, strict=True):
            if report.code == layout.UNAVAILABLE and report.next_offset is not None and self.ledger.faulted.cut:
                self._next_offsets[each.topic, each.queue] = report.next_offset  # the log has lost what lies between
            if report.code != layout.OFFSET_OUT_OF_RANGE or broker:  # a slave may lack what was shown
                continue
            if not self.ledger.faulted.cut:
                raise Broken(f"{each}: this offset was shown, and is out of range: {report}")
            if report.end_offset is not None:  # a power cut has taken what was shown
                first = report.min_offset or 0
                self._next_offsets[each.topic, each.queue] = max(first, min(each.offset or 0, report.end_offset))

    def _take(self, topic: str, queue: int, first: int, messages: list[bytes]) -> None:
        wanted = self._next_offsets[topic, queue]
        if first > wanted and not self.ledger.faulted.cut:
            raise Broken(f"{topic} {queue}: the reader wants offset {wanted}, and gets {first}")
        for number, message in enumerate(messages):
            self.ledger.reads((topic, queue, first + number), message)
        self._next_offsets[topic, queue] = max(wanted, first + len(messages))
