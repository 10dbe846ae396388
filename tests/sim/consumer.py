"""Consumers of a simulated engine that check what they get."""

from collections.abc import Iterator
from typing import NamedTuple

from engine.delivery.receipt import topic_hash
from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.pieces import AnswerPiece
from engine.link.pull import decode_answer, encode_pull
from engine.link.record import read_record
from tests.sim.clients import Client
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link
from tests.sim.sent import Broken, LastLease, Place, Sent


class Record(NamedTuple):
    """One delivered record."""

    place: Place
    stored_at_ms: int
    attempt: int
    receipt: tuple[bytes, int]
    message: bytes
    token: bytes


def records_of(topics: dict[int, str], pieces: list[AnswerPiece]) -> Iterator[Record]:
    """The single records of pieces. `topics`: name by the hash in a receipt."""
    for piece in pieces:
        hashed = int.from_bytes(piece.token[8:16], "little")
        topic = topics.get(hashed)
        if topic is None:
            raise Broken(f"a piece of a topic that was not asked for: {piece.token.hex()}")
        at = 0
        for index in range(piece.count):
            record, at = read_record(piece.records, at)
            yield Record(
                (topic, piece.queue, piece.first_offset + index), piece.stored_at_ms, piece.attempt,
                (piece.token, piece.first_delta + index), record.message, record.reply_token,
            )  # fmt: skip


class Verdict(NamedTuple):
    """A verdict on a delivered message, on its way."""

    place: Place
    verdict: int
    lease: LastLease
    ack: AckRange


class Consumer(Client):
    """One consumer of a group: pulls, works for a while, acknowledges with its next pull, answers requests.

    Args:
        topics: name -> queues; it creates those that are missing.
        work_ms: longest time of its work.
        retry, reject, forget, extend, release: shares of its verdicts; all others are DONE.
    """

    wait_ms = 5_000

    def __init__(
        self, engine: Engine, name: str, history: History, group: str, topics: dict[str, int], work_ms: int = 300,
        invisible_ms: int = 8_000, retry: float = 0.05, reject: float = 0.0, forget: float = 0.02, extend: float = 0.02,
        max_messages: int = 32, release: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(engine, name, history)
        self.group, self.topics, self.work_ms, self.invisible_ms = group, dict(topics), work_ms, invisible_ms
        self.retry, self.reject, self.forget, self.extend = retry, reject, forget, extend
        self.release = release
        self.max_messages = max_messages
        self.hashes = {topic_hash(topic): topic for topic in topics}
        self._sent_ms, self._stamp = 0, (0, 0)

    def grow(self, topic: str, queues: int) -> None:
        if topic in self.topics:
            self.topics[topic] = max(queues, self.topics[topic])  # it may follow two growths at about one time

    def calm(self) -> None:
        """From now on acknowledge everything at once."""
        self.retry = self.reject = self.forget = self.extend = self.release = 0.0
        self.slow_ms, self.work_ms, self.max_messages = 0, 20, 256

    def on_sending(self, link: Link, op: int, code: int, payload: bytes) -> None:
        super().on_sending(link, op, code, payload)
        if op == layout.PULL and code == layout.OK:
            self._sent_ms = self.world.now_ms - self.world.paused_ms  # leases begin when the engine's turn begins
            self._stamp = self.history.stamp(self.history.groups[self.group])
            _, pieces = decode_answer(payload)
            for piece in pieces:
                topic = self.hashes.get(int.from_bytes(piece.token[8:16], "little"), "")
                for index in range(piece.count):
                    self.history.on_the_way(self.group, (topic, piece.queue, piece.first_offset + index))

    def on_ready(self, link: Link) -> None:
        self._pull(link, [])

    def _pull(self, link: Link, verdicts: list[Verdict]) -> None:
        if link.closed:
            return
        now_ms, wanted = self.world.now_ms, self.max_messages
        for each in verdicts:
            sent = (
                self.history.sent[self.history.names.get(each.place, "")] if each.place in self.history.names else None
            )
            if sent is not None:
                self.history.acknowledges(self.group, each.place, each.verdict, sent)
        request = encode_pull(
            self.group, list(self.topics.items()), max_messages=self.max_messages, wait_ms=self.wait_ms,
            invisible_ms=self.invisible_ms, acks=[each.ack for each in verdicts],
        )  # fmt: skip
        link.ask(
            layout.PULL,
            request,
            lambda code, payload: self._on_answer(link, verdicts, now_ms, wanted, code, payload),
        )

    def _on_answer(
        self, link: Link, verdicts: list[Verdict], sent_ms: int, wanted: int, code: int, payload: bytes
    ) -> None:
        if code != layout.OK:
            # Refused as a whole: whether the acknowledgements count is unknown.
            self.world.after(self.random.randint(50, 500), lambda: self._pull(link, []))
            return
        codes, pieces = decode_answer(payload)
        self._check_size(wanted, pieces)
        for each, ack_code in zip(verdicts, codes, strict=True):
            self.history.acknowledged(self.group, each.place, each.verdict, ack_code, each.lease, sent_ms)
        following = []
        lease = LastLease(self.name, self._sent_ms + self.invisible_ms, self._stamp)
        for record in records_of(self.hashes, pieces):
            sent = self.history.deliver(
                self.group, record.place, record.message, record.attempt, record.stored_at_ms, lease, self._sent_ms
            )
            if record.token:
                self._check_withdrawn(sent)
                self._reply(link, record.token, sent)
            found = self._verdict(record, lease)
            if found is not None:
                following.append(found)
        self.world.after(self.random.randint(0, self.work_ms), lambda: self._pull(link, following))

    @staticmethod
    def _check_size(wanted: int, pieces: list[AnswerPiece]) -> None:
        """A message that failed comes with fewer others each time."""
        attempt, total = max((piece.attempt for piece in pieces), default=1), sum(piece.count for piece in pieces)
        if total > max(1, wanted >> (attempt - 1)):
            raise Broken(f"attempt {attempt} of a message came in a pull with {total} of {wanted} messages")

    def _check_withdrawn(self, sent: Sent) -> None:
        process, at_ms = sent.withdrawn
        if process == self.history.process and self._sent_ms > at_ms:
            raise Broken(
                f"group={self.group}: got {sent.name} {self._sent_ms - at_ms} ms after its asker knew the outcome"
            )

    def _reply(self, link: Link, token: bytes, sent: Sent) -> None:
        link.ask(layout.REPLY, token + b"answer to " + sent.name.encode(), lambda code, payload: None)

    def _verdict(self, record: Record, lease: LastLease) -> Verdict | None:
        chance, delay_ms = self.random.random(), -1
        verdict = layout.DONE
        for share, other in (
            (self.retry, layout.RETRY), (self.reject, layout.REJECT), (self.extend, layout.EXTEND),
            (self.release, layout.RELEASE),
        ):  # fmt: skip
            if chance < share:
                verdict = other
                break
            chance -= share
        else:
            if chance < self.forget:
                return None
        if verdict == layout.RETRY:
            delay_ms = self.random.randint(0, 3_000)
        ack = AckRange(*record.receipt, 1, verdict, delay_ms)
        return Verdict(record.place, verdict, lease, ack)
