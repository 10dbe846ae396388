"""A client of a simulated engine that sends requests, and checks their replies and outcomes."""

from functools import partial
from typing import Any

from common.reply_token import TOKEN_SIZE, ReplyToken, ReplyTokens
from engine.link import layout
from engine.link.append import read_results
from engine.link.batch import encode_batch
from engine.link.codes import NO_CONSUMER
from tests.sim.clients import Sender
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link
from tests.sim.sent import Broken, Sent

TOKENS = ReplyTokens(b"k")


class Asker(Sender):
    """Sends requests, and checks that the replies are to its own.

    Args:
        wait_ms: time after which it asks for the outcome; 0: it has no end, as in a token of an earlier version.
    """

    def __init__(self, engine: Engine, name: str, history: History, wait_ms: int = 0, **options: Any) -> None:
        super().__init__(engine, name, history, **options)
        self.wait_ms = wait_ms

    def on_ready(self, link: Link) -> None:
        self.instance = self.random.randrange(1, 1 << 62)
        ready = super().on_ready
        link.ask(layout.LISTEN, layout.INSTANCE.pack(self.instance), lambda code, payload: ready(link))

    def work(self, link: Link) -> None:
        topic = self._pick_topic()
        topic_id = self.known.find(topic)
        if topic_id is None:
            self._learn(link, topic)
            return
        sent = self.message(topic)
        reply_by_ms = self.history.wall_ms + (self.wait_ms or 3_600_000)
        token = TOKENS.make(ReplyToken(self.number, self.instance, reply_by_ms, self.wait_ms))
        record = bytes([layout.HAS_TRAILER]) + sent.message + token
        queue = self.random.randrange(self.topics_queues(topic))
        batch = encode_batch(topic_id, queue, [len(record).to_bytes(4, "little") + record])
        self.history.asked[token] = sent.name

        def on_answer(code: int, answer: bytes) -> None:
            if code == layout.OK:
                (result,) = read_results(answer)
                self._on_result((topic, queue, [sent]), result, True)
                if self.wait_ms and sent.place is not None:
                    self.world.after(self.wait_ms, partial(self._ask_outcome, link, token, sent, self.history.process))
            else:
                self.history.refused(sent, code)
            self._later(link)

        link.ask(layout.APPEND, layout.APPEND_HEAD.pack(layout.FSYNC, 1) + batch, on_answer)

    def _ask_outcome(self, link: Link, token: bytes, sent: Sent, process: int) -> None:
        def on_answer(code: int, payload: bytes) -> None:
            if code != layout.OK or self.history.process != process:
                return
            (outcome,) = layout.U16.unpack(payload)
            groups = [name for name, group in self.history.groups.items() if sent.place in group.frames]
            if outcome == NO_CONSUMER and groups:
                raise Broken(f"{sent.name}: NO_CONSUMER, and group {groups[0]} has it")
            sent.withdrawn = process, self.world.now_ms

        if not link.closed and token not in self.history.replied:
            link.ask(layout.OUTCOME, token, on_answer)

    def on_unasked(self, link: Link, op: int, payload: bytes) -> None:
        number, code = layout.FORWARD_HEAD.unpack_from(payload)
        token = payload[layout.FORWARD_HEAD.size :][:TOKEN_SIZE]
        name = self.history.asked.get(token)
        if name is None or not name.startswith(f"{self.name}#"):
            raise Broken(f"{self.name}: got the reply to {name}")
        if code == layout.OK:
            if payload[layout.FORWARD_HEAD.size + TOKEN_SIZE :] != b"answer to " + name.encode():
                raise Broken(f"{self.name}: the reply to {name} is {payload[-80:]!r}")
            self.history.replied[token] = self.history.replied.get(token, 0) + 1
        if number:
            link.tell(layout.FORWARDED, layout.FORWARDED_BODY.pack(number, layout.OK))
