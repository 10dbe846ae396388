"""A broker of a group with replicas, of which a test says whether it leads and what it has of the other's log."""

from copy import deepcopy

from gevent.event import Event

from engine.link import layout
from engine.link.append import RESEND_HEAD, encode_append, read_results
from engine.link.batch import BATCH_HEADER, BATCH_HEADER_SIZE
from engine.link.timer import parse
from tests.services.fake_broker import FakeBroker

TIMER = -1
"""In place of a topic's id: the entry is a delayed message."""


class FakeMember(FakeBroker):
    """A position of its log is a number of batches. `log`: (topic id, queue, records, offset) of each."""

    def __init__(self, name: str, leads: bool = False, term: int = 1) -> None:
        super().__init__("a" * 32)
        self.epoch, self.name, self.leads, self.term = f"start of {name}", name, leads, term
        self.log: list[tuple[int, int, bytes, int]] = []
        self.answers = Event()  # cleared: everything is done, and not answered
        self.answers.set()
        self.resent: list[tuple[int, int]] = []  # (position, batches) of each RESEND
        self.timers_again: list[int] = []  # position of each TIMER_ADD_AGAIN
        self.asked: list[tuple[int, bytes]] = []
        self.refuses = False  # answers NOT_MASTER although it says that it leads

    def copy(self, other: "FakeMember") -> None:
        """Have all that the other broker has."""
        self.log, self.stored, self.topics = list(other.log), deepcopy(other.stored), deepcopy(other.topics)
        self.timers = list(other.timers)
        self.end_position, self.log_id = other.end_position, other.log_id

    def lead(self, term: int) -> None:
        """Become the master; links that are open end."""
        self.leads, self.term = True, term
        self.break_links()

    def _identity(self) -> dict[str, object]:
        return super()._identity() | {"leads": self.leads, "broker": self.name, "term": self.term}

    def _answer(self, op: int, payload: bytes) -> tuple[int, bytes]:
        self.asked.append((op, payload))
        if not self.leads or self.refuses:
            return layout.NOT_MASTER, b"another broker leads"
        if op == layout.RESEND:
            code, answer = self._resend(payload)
        elif op == layout.TIMER_ADD_AGAIN:
            code, answer = self._add_timers_again(payload)
        elif op in (layout.PULL, layout.READ, layout.LISTEN):
            code, answer = 0, layout.U32.pack(0) + layout.U32.pack(0)
        else:
            code, answer = super()._answer(op, payload)
        self.answers.wait()
        return code, answer

    def _append(self, payload: bytes) -> tuple[int, bytes]:
        code, answer = super()._append(payload)
        if code:
            return code, answer
        for (topic_id, queue, records), (refused, _, offset) in zip(_split(payload), read_results(answer), strict=True):
            if not refused:
                self.log.append((topic_id, queue, records, offset))
        self.end_position = len(self.log)
        return code, answer[: -layout.APPEND_END.size] + layout.APPEND_END.pack(self.end_position)

    def _add_timers(self, payload: bytes) -> tuple[int, bytes]:
        before = len(self.timers)
        found = super()._add_timers(payload)
        self.log += [(TIMER, 0, timer.identity, 0) for timer in self.timers[before:]]
        self.end_position = len(self.log)
        return found

    def _add_timers_again(self, payload: bytes) -> tuple[int, bytes]:
        """Of one timer."""
        (position,) = RESEND_HEAD.unpack_from(payload)
        self.timers_again.append(position)
        add = payload[RESEND_HEAD.size :]
        wanted = parse(add, layout.APPEND_HEAD.size)
        assert wanted is not None
        if (TIMER, 0, wanted.identity, 0) in self.log[position:]:
            return 0, layout.APPEND_RESULT.pack(0, 0, 0)
        return self._add_timers(add)

    def _resend(self, payload: bytes) -> tuple[int, bytes]:
        (position,) = RESEND_HEAD.unpack_from(payload)
        payload = payload[RESEND_HEAD.size :]
        batches = list(_split(payload))
        self.resent.append((position, len(batches)))
        results = []
        at = layout.APPEND_HEAD.size
        for topic_id, queue, records in batches:
            size = BATCH_HEADER_SIZE + len(records)
            found = [offset for *each, offset in self.log[position:] if each == [topic_id, queue, records]]
            if found:
                results.append((0, 0, found[0]))
            else:
                padded = payload[at : at + size + -size % 8]
                results += read_results(self._append(encode_append(payload[0], padded))[1])
            at += size + -size % 8
        return 0, b"".join(layout.APPEND_RESULT.pack(*each) for each in results) + layout.APPEND_END.pack(len(self.log))


def _split(payload: bytes):
    """(topic id, queue, records) of each batch of an APPEND."""
    at = layout.APPEND_HEAD.size
    while at < len(payload):
        header = BATCH_HEADER.unpack_from(payload, at)
        yield header[6], header[7], payload[at + BATCH_HEADER_SIZE : at + header[1]]
        at += header[1] + -header[1] % 8
