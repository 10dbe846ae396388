"""A delivery on a log in memory with a clock that the test turns."""

from dataclasses import replace

from engine.delivery.creations import NO_LIMITS, Creations
from engine.delivery.delivery import Delivery
from engine.delivery.native import FORM, REFERENCE, DeliveryForm
from engine.delivery.policy import DEFAULT, GroupPolicy
from engine.delivery.pull import AckRange, PullRequest
from engine.delivery.receipt import receipt_key
from engine.delivery.settings import DeliverySettings
from engine.link.acknowledgement import DONE
from engine.link.integers import U16, U32
from engine.link.pieces import PIECE
from engine.link.receipt import TOKEN, TOKEN_SIZE
from engine.log.format import pack_record
from engine.log.memory import MemoryLog

FORMS = [REFERENCE] if FORM is REFERENCE else [FORM, REFERENCE]
WALL0 = 1_800_000_000_000


class Given:
    """One piece of an answer, its records counted, not parsed; `records` may go on with what follows."""

    def __init__(self, head: bytes, records: bytes) -> None:
        self.token, self.first, self.delta, self.queue, self.count, self.attempt, self.stored_at_ms, self.size, _ = (
            PIECE.unpack(head)
        )
        self.records = records[: self.size]
        assert self.size == len(self.records)

    @property
    def offsets(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def lease(self) -> int:
        return TOKEN.unpack(self.token[: TOKEN_SIZE - 16])[-1]

    def ack(self, first=0, count=None, verdict=DONE, delay_ms=-1, reason=b"") -> AckRange:
        return AckRange(
            self.token, self.delta + first, self.count if count is None else count, verdict, delay_ms, reason
        )


class Policies:
    """One policy for every group, which tests change as an operator does."""

    def __init__(self) -> None:
        self.generation, self._policy, self.is_current = 0, DEFAULT, True

    def set(self, **changes) -> None:
        self.generation, self._policy = self.generation + 1, replace(self._policy, **changes)

    def of(self, group: str) -> GroupPolicy:
        return self._policy

    def latest_groups(self, seen):
        return self, iter([[("g", self._policy.start_at_ms)]] if self._policy.is_from_now else [])


class World:
    """Restartable: what the log keeps is all that a new Delivery gets."""

    def __init__(self, form: DeliveryForm = FORM, **settings) -> None:
        self.form = form
        self.now_ms = 1_000
        self.wall_ms = WALL0
        self.log = MemoryLog(lambda: self.wall_ms)
        # How long a read took is not the world's clock; without this a busy machine would cut pulls here and there.
        self.settings = DeliverySettings(**{"older_us": 1_000_000_000, **settings})
        self.policies = Policies()
        self.limits = NO_LIMITS
        self.restart()

    def restart(self) -> None:
        key = receipt_key(self.log, lambda size: b"k" * size)
        self.delivery = Delivery(
            self.log, key, lambda: self.wall_ms, self.settings, self.form, self.policies, lambda: 0.5,
            creations=Creations(self.log, self.limits),
        )  # fmt: skip
        self.delivery.on_time(self.now_ms)

    def turn(self, ms: int) -> None:
        self.now_ms += ms
        self.wall_ms += ms
        self.delivery.on_time(self.now_ms)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def topic(self, name: str = "orders", queues: int = 1) -> int:
        return self.log.create_topics([(name, queues)])[0].id

    def store(self, topic_id: int, count: int, queue: int = 0, size: int = 10) -> None:
        self.log.store(topic_id, queue, [pack_record(b"x" * (size - 5))] * count, self.wall_ms)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def pull(
        self,
        topics=(("orders", 1),),
        acks=(),
        group="g",
        most=32,
        most_bytes=0,
        wait_ms=0,
        invisible_ms=10_000,
        start=0,
        answers=None,
        window=None,
        application="",
    ):
        """Returns (ack codes, pieces) of an answer that came at once; with `answers` it is appended there when it comes."""
        got = [] if answers is None else answers
        raw = b"".join(U16.pack(len(name)) + name.encode() + U32.pack(queues) for name, queues in topics)
        request = PullRequest(
            group, list(topics), raw, most, most_bytes, wait_ms, invisible_ms, start, list(acks), application
        )
        pull = self.delivery.pull(request, self.now_ms, lambda done: got.append(answer_of(done)), window)
        return pull if answers is not None else got[0]

    def give(self, **options) -> list[Given]:
        return self.pull(**options)[1]


def answer_of(pull) -> tuple[list[int], list[Given]]:
    data, at, pieces = b"".join(pull.pieces), 0, []
    while at < len(data):
        records_at = at + PIECE.size
        pieces.append(Given(data[at:records_at], data[records_at:]))
        at = records_at + pieces[-1].size
    assert len(pieces) == pull.piece_count
    return pull.ack_codes, pieces


def offsets(pieces: list[Given]) -> list[int]:
    return [offset for piece in pieces for offset in piece.offsets]
