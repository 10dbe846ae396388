"""Senders of delayed messages, which cancel some of them."""

import json
from typing import Any

from engine.link import layout
from engine.link.timer import ANY_QUEUE, Timer, encode_add
from tests.sim.clients import ID_WINDOW_MS, Sender
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link
from tests.sim.sent import Sent


class DelayedSender(Sender):
    """Adds some timers per request, due within `delay_ms_max`, and cancels a share of them later.

    Args:
        options: of a sender.
    """

    cancel_share = 0.15
    count_max = 8
    with_window = True

    def __init__(self, engine: Engine, name: str, history: History, delay_ms_max: int = 4_000, **options: Any) -> None:
        super().__init__(engine, name, history, **options)
        self.delay_ms_max = delay_ms_max

    def work(self, link: Link) -> None:
        topic = self._pick_topic()
        topic_id = self.known.find(topic)
        if topic_id is None:
            return self._learn(link, topic)
        durability = self.random.choice(self.durability)
        sent = [self._delayed(topic) for _ in range(self.random.randint(1, self.count_max))]
        timers = [self._timer(each, topic_id) for each in sent]

        def on_answer(code: int, answer: bytes) -> None:
            results = (
                list(layout.APPEND_RESULT.iter_unpack(answer)) if code == layout.OK else [(code, 0, 0)] * len(sent)
            )
            for each, (one, _, _) in zip(sent, results, strict=True):
                if one == layout.UNKNOWN_TOPIC:
                    self.known.forget(topic)
                if one == layout.OK:
                    each.state, each.durable = "kept", durability == layout.FSYNC
                    self._cancel_later(each)
                else:
                    self.history.refused(each, one)
            self._later(link)

        link.ask(layout.TIMER_ADD, encode_add(durability, timers), on_answer)
        return None

    def _delayed(self, topic: str) -> Sent:
        sent = self.message(topic)
        sent.due_ms = self.history.wall_ms + self.random.randint(0, self.delay_ms_max)
        return sent

    def _timer(self, sent: Sent, topic_id: int) -> Timer:
        record = b"\1" + self.id_of(sent) + sent.message
        window_ms = ID_WINDOW_MS if self.with_window and sent.order % 2 else 0
        return Timer(sent.due_ms, topic_id, ANY_QUEUE, 0, 0, 0, 0, 1, 1, 16, window_ms, record)

    def id_of(self, sent: Sent) -> bytes:
        """Its assigned id."""
        return sent.name.encode()[-16:].rjust(16, b".")

    def _cancel_later(self, sent: Sent) -> None:
        if self.random.random() < self.cancel_share:
            self.world.after(self.random.randint(0, self.delay_ms_max), lambda: self._cancel(sent))

    def _cancel(self, sent: Sent) -> None:
        link = self.link
        if link is None or link.closed or not link.peer_state.authenticated:
            return
        sent.cancelled = "open"
        request = {"topic": sent.topic, "id": self.id_of(sent).hex(), "durability": layout.FSYNC}

        def on_answer(code: int, payload: bytes) -> None:
            if code == layout.OK:
                sent.cancelled = "kept"
            elif code // 100 != 3:
                sent.cancelled = "refused"

        link.ask(layout.TIMER_CANCEL, json.dumps(request).encode(), on_answer)
