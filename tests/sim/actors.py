"""Clients of simulated engines: producers, consumers, senders of delayed messages, askers.

Each client owns one link and keeps reconnecting.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from common.reply_token import TOKEN_SIZE, ReplyToken, ReplyTokens
from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.append import read_results
from engine.link.pieces import AnswerPiece
from engine.link.proof import ADMIN_ROLE
from engine.link.pull import decode_answer, encode_pull
from engine.link.timer import ANY_QUEUE, Timer
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record
from tests.sim.engine import Engine
from tests.sim.ledger import Ledger, Place
from tests.sim.link import Link

RECONNECT_MS = 1_000
TOKENS = ReplyTokens(b"k")


def message(body: bytes) -> bytes:
    """A message in Thrift binary with a body (field 2)."""
    return b"\x0b\x00\x02" + len(body).to_bytes(4, "big") + body + b"\0"


class Record(NamedTuple):
    """One delivered record. `assigned`: its id, empty when it has none; `token`: of a request, else empty."""

    place: Place
    stored_at_ms: int
    assigned: bytes
    message: bytes
    token: bytes


def records_of(topic: str, pieces: list[AnswerPiece]) -> Iterator[Record]:
    """The single records of pieces."""
    for piece in pieces:
        at = 0
        for index in range(piece.count):
            end = at + 4 + int.from_bytes(piece.records[at : at + 4], "little")
            flags, start = piece.records[at + 4], at + 5
            assigned = piece.records[start : start + 16] if flags & layout.HAS_ID else b""
            stop = end - TOKEN_SIZE if flags & layout.HAS_TRAILER else end
            place = (topic, piece.queue, piece.first_offset + index)
            yield Record(
                place,
                piece.stored_at_ms,
                assigned,
                piece.records[start + len(assigned) : stop],
                piece.records[stop:end],
            )
            at = end


class Actor:
    """A client with one link."""

    role = "test"

    def __init__(self, engine: Engine, name: str, ledger: Ledger) -> None:
        self.engine, self.world, self.name, self.ledger = engine, engine.world, name, ledger
        self.stopped = False
        self.link: Link | None = None
        self.world.after(self.world.random.randint(0, 100), self._connect)

    def stop(self) -> None:
        """Stop beginning new work."""
        self.stopped = True

    def on_ready(self, link: Link) -> None:
        raise NotImplementedError

    def on_unasked(self, link: Link, op: int, payload: bytes) -> None:
        raise AssertionError(f"{self.name}: frame {op} was not asked for")

    def on_sending(self, link: Link, op: int, code: int, payload: bytes) -> None:
        pass

    def on_closed(self, link: Link) -> None:
        self.link = None
        self.world.after(RECONNECT_MS, self._connect)

    def _connect(self) -> None:
        self.link = self.engine.connect(self)
        if self.link is None:
            self.world.after(RECONNECT_MS, self._connect)


class Producer(Actor):
    """Appends batches of a topic, one APPEND at a time, about every `pause_ms`."""

    def __init__(
        self, engine: Engine, name: str, ledger: Ledger, topic: str, queues: int, pause_ms: int,
        durability: int = layout.FSYNC,
    ) -> None:  # fmt: skip
        super().__init__(engine, name, ledger)
        self.topic, self.queues, self.pause_ms, self.durability = topic, queues, pause_ms, durability
        self.topic_id = 0
        self.sent = 0

    def on_ready(self, link: Link) -> None:
        wanted = {"topics": [{"name": self.topic, "queues": self.queues}]}
        link.ask(layout.TOPIC, json.dumps(wanted).encode(), lambda code, payload: self._on_topic(link, payload))

    def _on_topic(self, link: Link, payload: bytes) -> None:
        self.topic_id = json.loads(payload)["topics"][0]["id"]
        self._later(link)

    def _later(self, link: Link) -> None:
        self.world.after(self.world.random.randint(1, 2 * self.pause_ms), lambda: self._next(link))

    def _next(self, link: Link) -> None:
        if not self.stopped and not link.closed:
            self.send(link)

    def send(self, link: Link) -> None:
        """Do one unit of work, then call `_later`."""
        random = self.world.random
        batches = [
            (random.randrange(self.queues), [self._body() for _ in range(random.randint(1, 5))])
            for _ in range(random.randint(1, 3))
        ]
        packed = [
            pack_batch(KIND_MESSAGES, self.topic_id, queue, [pack_record(message(body)) for body in bodies])
            for queue, bodies in batches
        ]
        payload = layout.APPEND_HEAD.pack(self.durability, len(packed)) + b"".join(map(_padded, packed))

        def on_answer(code: int, answer: bytes) -> None:
            if code == layout.OK:
                for (queue, bodies), result in zip(batches, read_results(answer), strict=True):
                    assert result[0] == layout.OK
                    for offset, body in enumerate(bodies, result[2]):
                        self.ledger.appended[self.topic, queue, offset] = message(body)
            self._later(link)

        link.ask(layout.APPEND, payload, on_answer)

    def _body(self) -> bytes:
        self.sent += 1
        return b"%s-%d" % (self.name.encode(), self.sent) + bytes(self.world.random.randint(0, 200))


def _padded(batch: bytes) -> bytes:
    return batch + bytes(-len(batch) % 8)


class DelayedSender(Producer):
    """Sends delayed messages, due within `delay_ms_max`."""

    def __init__(self, *arguments: object, delay_ms_max: int, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.delay_ms_max = delay_ms_max

    def send(self, link: Link) -> None:
        due_ms = self.world.now_ms + self.world.random.randint(1_000, self.delay_ms_max)
        shown_id = self.world.random.randbytes(16)
        timer = Timer(
            due_ms, self.topic_id, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, 0, b"\1" + shown_id + message(self._body())
        )

        def on_answer(code: int, answer: bytes) -> None:
            if code == layout.OK:
                ((result, _, _),) = layout.APPEND_RESULT.iter_unpack(answer)
                assert result == layout.OK
                self.ledger.timers[shown_id] = due_ms
            self._later(link)

        link.ask(layout.TIMER_ADD, layout.APPEND_HEAD.pack(self.durability, 1) + timer.pack(), on_answer)


class Asker(Producer):
    """Sends requests and waits for their replies on its link."""

    reply_ms = 3_600_000

    def on_ready(self, link: Link) -> None:
        self.instance = self.world.random.randrange(1, 1 << 62)
        listening = layout.INSTANCE.pack(self.instance)
        link.ask(layout.LISTEN, listening, lambda code, payload: super(Asker, self).on_ready(link))

    def send(self, link: Link) -> None:
        self.sent += 1
        token = TOKENS.make(ReplyToken(self.sent, self.instance, self.world.now_ms + self.reply_ms))
        record = bytes([layout.HAS_TRAILER]) + message(b"question") + token
        batch = pack_batch(
            KIND_MESSAGES, self.topic_id, self.sent % self.queues, [len(record).to_bytes(4, "little") + record]
        )

        def on_answer(code: int, answer: bytes) -> None:
            if code == layout.OK:
                self.ledger.asked.add(token)
            self._later(link)

        link.ask(layout.APPEND, layout.APPEND_HEAD.pack(self.durability, 1) + _padded(batch), on_answer)

    def on_unasked(self, link: Link, op: int, payload: bytes) -> None:
        assert op == layout.FORWARD
        number, code = layout.FORWARD_HEAD.unpack_from(payload)
        assert code == layout.OK
        at = layout.FORWARD_HEAD.size
        self.ledger.replied[payload[at : at + TOKEN_SIZE]] += 1
        link.tell(layout.FORWARDED, layout.FORWARDED_BODY.pack(number, layout.OK))


class Operator(Actor):
    """Sends one ADMIN verb; `answer` is the engine's answer."""

    role = ADMIN_ROLE

    def __init__(self, engine: Engine, verb: str, **request: object) -> None:
        super().__init__(engine, f"operator-{verb}", Ledger())
        self.answer: dict = {}
        self._request = json.dumps({"verb": verb, **request}).encode()

    def on_ready(self, link: Link) -> None:
        link.ask(layout.ADMIN, self._request, self._on_answer)

    def _on_answer(self, code: int, payload: bytes) -> None:
        assert code == layout.OK, payload
        self.answer = json.loads(payload)


def lag(engine: Engine, group: str) -> int:
    """The engine's count of messages that the group has not acknowledged. Advances the clock by a second."""
    operator = Operator(engine, "lag", group=group)
    engine.world.run(1_000)
    return sum(row["lag"] for row in operator.answer["queues"])


class Consumer(Actor):
    """One consumer of a group: pulls, works for up to half a second, acknowledges with its next pull; answers requests.

    Some messages are deferred with RETRY. A smaller share is never acknowledged, so their leases expire.
    """

    wait_ms = 20_000
    invisible_ms = 15_000
    retry_share, forget_share = 0.06, 0.02

    def __init__(self, engine: Engine, name: str, ledger: Ledger, group: str, topic: str, queues: int) -> None:
        super().__init__(engine, name, ledger)
        self.group, self.topic, self.queues = group, topic, queues

    def on_ready(self, link: Link) -> None:
        self._pull(link, [], [])

    def _pull(self, link: Link, acks: list[AckRange], places: list[Place]) -> None:
        if link.closed:
            return
        request = encode_pull(
            self.group, [(self.topic, self.queues)], max_messages=32, wait_ms=self.wait_ms,
            invisible_ms=self.invisible_ms, acks=acks,
        )  # fmt: skip
        sent = self.ledger.maybe_done.setdefault(self.group, set())
        sent.update(place for ack, place in zip(acks, places, strict=True) if ack.verdict == layout.DONE)
        link.ask(layout.PULL, request, lambda code, payload: self._on_answer(link, acks, places, payload))

    def _on_answer(self, link: Link, acks: list[AckRange], places: list[Place], payload: bytes) -> None:
        codes, pieces = decode_answer(payload)
        done = self.ledger.done.setdefault(self.group, set())
        for ack, place, code in zip(acks, places, codes, strict=True):
            if ack.verdict == layout.DONE and code == layout.OK:
                done.add(place)
        acks, places = [], []
        tokens = [(piece.token, piece.first_delta + index) for piece in pieces for index in range(piece.count)]
        for record, (token, delta) in zip(records_of(self.topic, pieces), tokens, strict=True):
            self._take(link, record)
            verdict = self._verdict()
            if verdict is not None:
                delay_ms = self.world.random.randint(1, 60_000) if verdict == layout.RETRY else -1
                acks.append(AckRange(token, delta, 1, verdict, delay_ms))
                places.append(record.place)
        self.world.after(self.world.random.randint(0, 500), lambda: self._pull(link, acks, places))

    def _take(self, link: Link, record: Record) -> None:
        self.ledger.deliver(self.group, record.place, record.message)
        if record.assigned:
            self.ledger.fire(record.assigned, record.place, record.stored_at_ms)
        if record.token:
            link.ask(layout.REPLY, record.token + b"answer", lambda code, payload: None)

    def _verdict(self) -> int | None:
        chance = self.world.random.random()
        if chance < self.forget_share:
            return None
        return layout.RETRY if chance < self.forget_share + self.retry_share else layout.DONE
