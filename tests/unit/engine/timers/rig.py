"""Timers on a real log in a simulated machine, with the few verbs that tests use again and again."""

from itertools import count
from random import Random

from engine.config import LogConfig
from engine.env.simulated import SimulatedEnv
from engine.errors import CorruptionError
from engine.link.timer import ANY_QUEUE, Timer
from engine.log import open_log
from engine.log.format import pack_batch, pack_record
from engine.timers.timers import Timers

TOPIC, QUEUES = "orders", 3
_FILLING = bytes(1500)


class Rig:
    """Topic 1 with three queues. The clock is `env.clock_ms`; `fired()` is what consumers would see."""

    def __init__(self, segment_bytes: int = 32 << 10, **settings) -> None:
        self.env = SimulatedEnv()
        self.config = LogConfig(segment_bytes=segment_bytes, **settings)
        self._numbers = count()
        self.open()
        (self.topic,) = self.log.create_topics([(TOPIC, QUEUES)])
        self.sync()

    def open(self) -> None:
        self.log = open_log(self.env, "/engine", self.config)
        self.timers = Timers(self.log, self.env.now_ms)

    def kill(self) -> None:
        """kill -9 and start again: what was written is there."""
        self.env.end_process()
        self.open()

    def cut_power(self, random: Random | None = None) -> None:
        """What was not synced may be gone or torn."""
        self.env.crash(random)
        self.open()

    def restart(self) -> None:
        self.timers.close()
        self.log.close()
        self.open()

    @property
    def now_ms(self) -> int:
        return self.env.clock_ms

    def timer(
        self,
        shown_id: str,
        due_ms: int,
        queue: int = ANY_QUEUE,
        body: bytes = b"body\0",
        id_window_ms: int = 0,
        **loop: int,
    ) -> Timer:
        """With an id of its client's own, which is in the message's field 6."""
        name = shown_id.encode()
        message = (
            b"\x0b\x00\x06"
            + len(name).to_bytes(4, "big")
            + name
            + b"\x0b\x00\x02"
            + len(body).to_bytes(4, "big")
            + body
            + b"\0"
        )
        rounds = {"until_ms": 0, "gap_ms": 0, "times": 0, "growth": 1, **loop}
        return Timer(
            due_ms,
            self.topic.id,
            queue,
            0,
            **rounds,
            id_at=8,
            id_size=len(name),
            id_window_ms=id_window_ms,
            record=b"\0" + message,
        )

    def add(self, shown_id: str, due_ms: int, **options) -> int:
        packed = self.timer(shown_id, due_ms, **options).pack()
        (added,) = self.timers.add(packed, 1)
        return added.code

    def cancel(self, shown_id: str) -> int:
        return self.timers.cancel(self.topic.id, shown_id.encode())

    def sync(self) -> None:
        self.log.when_durable(self.log.end_position, lambda: None)

    def run(self) -> None:
        """Have everything done that is to be done at this moment."""
        for _ in range(10_000):
            if self.timers.step() != 0:
                return
        raise AssertionError("the timers are busy for ever")

    def advance(self, ms: int) -> None:
        self.env.clock_ms += ms
        self.run()

    def fill(self) -> None:
        """Other messages, so that segments become full."""
        self.log.append(pack_batch(0, self.topic.id, 0, [pack_record(_FILLING)]), 1, self.now_ms)

    def stored(self) -> list[tuple[str, int, int, int]]:
        """(id, queue, offset, stored at) of what had been delayed, over all queues."""
        found = []
        for queue in range(QUEUES):
            offset, end = self.log.bounds(self.topic.id, queue)
            while offset < end:
                try:
                    pieces = self.log.read(self.topic.id, queue, offset, 100, 1 << 20)
                except CorruptionError as error:
                    assert error.next_offset is not None
                    offset = error.next_offset
                    continue
                for piece in pieces:
                    at = 0
                    while at < len(piece.records):
                        size = int.from_bytes(piece.records[at : at + 4], "little")
                        record = piece.records[at + 4 : at + 4 + size]
                        if record[1:4] == b"\x0b\x00\x06":
                            name = record[8 : 8 + int.from_bytes(record[4:8], "big")].decode()
                            found.append((name, queue, offset, piece.stored_at_ms))
                        at += 4 + size
                        offset += 1
        return found

    def fired(self) -> list[str]:
        """Ids of what was delivered, in the order of storing."""
        return [name for name, *_ in sorted(self.stored(), key=lambda row: row[3])]
