"""Clients of a simulated engine that check its answers: senders and an operator.

Each client owns one link and keeps reconnecting. Its choices come from a source of its own, so leaving a client out
changes no other one's.
"""

import json

from common.keyhash import queue_of
from engine.link import layout
from engine.link.append import read_results
from engine.link.batch import encode_batch
from engine.link.proof import ADMIN_ROLE
from engine.log.format import pack_record
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link
from tests.sim.sent import Broken, Sent

RECONNECT_MS = 400
ID_WINDOW_MS = 3_600_000
TAGS = ("red", "green", "blue")
FRESH_MS = 1_500
"""How often new topics come up, where they do."""

AGAIN_MS_MAX = 300
TRIES_MAX = 40
"""A refused message with an id of its own is sent again after a pause, as a client does that must not lose it."""

STORED = (layout.OK, layout.DUPLICATE)
Batches = list[tuple[str, int, list[Sent]]]
"""(topic, queue, messages) of each batch of a frame."""


def string(field: int, value: bytes) -> bytes:
    """A string field in Thrift binary."""
    return b"\x0b" + field.to_bytes(2, "big") + len(value).to_bytes(4, "big") + value


class Client:
    """A client with one link.

    Args:
        engine: the server.
        name: unique in the run.

    Attributes:
        slow_ms: how long it takes to read a frame.
    """

    role = "test"

    def __init__(self, engine: Engine, name: str, history: History) -> None:
        self.engine, self.world, self.name, self.history = engine, engine.world, name, history
        self.random = self.world.random_of(name)
        self.stopped = False
        self.slow_ms = 0
        self.link: Link | None = None
        self.world.after(self.random.randint(0, 100), self._connect)

    def stop(self) -> None:
        """Stop beginning new work."""
        self.stopped = True

    def on_ready(self, link: Link) -> None:
        raise NotImplementedError

    def on_unasked(self, link: Link, op: int, payload: bytes) -> None:
        raise Broken(f"{self.name}: frame {op} was not asked for")

    def on_sending(self, link: Link, op: int, code: int, payload: bytes) -> None:
        link.slow_ms = self.slow_ms

    def on_closed(self, link: Link) -> None:
        self.link = None
        self.world.after(RECONNECT_MS, self._connect)

    def grow(self, topic: str, queues: int) -> None:
        """Follow a definition that gives a topic more queues."""

    def leave(self) -> None:
        """Close the link; the client comes back."""
        if self.link is not None:
            self.link.close("the client went away")

    def _connect(self) -> None:
        self.link = self.engine.connect(self)
        if self.link is None:
            self.world.after(RECONNECT_MS, self._connect)


class Topics:
    """Topic ids as a proxy keeps them: as long as the log and the epoch are the same, and the engine knows them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._ids: dict[str, int] = {}
        self._history_id = "", ""

    def on_ready(self, link: Link) -> None:
        """The link is authenticated."""
        if link.history_id != self._history_id:
            self._ids, self._history_id = {}, link.history_id

    def find(self, name: str) -> int | None:
        """The topic's id, if it is known."""
        return self._ids.get(name)

    def forget(self, name: str) -> None:
        """The engine does not know the id."""
        self._ids.pop(name, None)

    def learn(self, wanted: list[tuple[str, int]], payload: bytes) -> None:
        """Take the answer of TOPIC."""
        for (name, _), found in zip(wanted, json.loads(payload)["topics"], strict=True):
            self._ids[name] = found["id"]
            self._history.shown[found["id"]] = name


def encode_topics(wanted: list[tuple[str, int]]) -> bytes:
    """A TOPIC request."""
    return json.dumps({"topics": [{"name": name, "queues": queues} for name, queues in wanted]}).encode()


class Sender(Client):
    """Sends batches to topics: with and without keys, ids, durability.

    Args:
        topics: name -> queues. One whose name ends in "-" gets a number now and then, so new topics come up.
        pause_ms: average time between two frames.
        keys: number of keys; 0: messages have none.
        check_ids: whether messages have ids of their own, so that what was refused, or whose answer was lost, is sent
            again.
        bytes_max: largest body.
    """

    def __init__(
        self, engine: Engine, name: str, history: History, topics: dict[str, int], pause_ms: int,
        durability: tuple[int, ...], keys: int = 0, check_ids: bool = False, bytes_max: int = 300,
    ) -> None:  # fmt: skip
        super().__init__(engine, name, history)
        self.topics, self.pause_ms, self.durability = dict(topics), pause_ms, durability
        self.keys, self.check_ids, self.bytes_max = keys, check_ids, bytes_max
        self.known = Topics(history)
        self.number = 0
        self._unanswered: list[tuple[int, Batches]] = []
        self._tries = 0

    def on_ready(self, link: Link) -> None:
        self.known.on_ready(link)
        if self._unanswered:
            durability, batches = self._unanswered.pop()
            return self._send(link, durability, batches)
        return self._later(link)

    def grow(self, topic: str, queues: int) -> None:
        if topic in self.topics:
            self.topics[topic] = max(queues, self.topics[topic])  # it may follow two growths at about one time
            self.known.forget(topic)  # the next batch asks for the new queues

    def _later(self, link: Link) -> None:
        self.world.after(self.random.randint(1, 2 * self.pause_ms), lambda: self._next(link))

    def _next(self, link: Link) -> None:
        if not self.stopped and not link.closed:
            self.work(link)

    def work(self, link: Link) -> None:
        """Do one unit of work, then call `_later`."""
        batches = []
        for _ in range(self.random.randint(1, 4)):
            topic = self._pick_topic()
            key = b"k%d" % self.random.randrange(self.keys) if self.keys else b""
            queues = self.topics_queues(topic)
            queue = queue_of(key, queues) if key else self.random.randrange(queues)
            count = 1 if self.check_ids else self.random.randint(1, 5)
            batches.append((topic, queue, [self.message(topic, key) for _ in range(count)]))
        self._send(link, self.random.choice(self.durability), batches)

    def _learn(self, link: Link, topic: str) -> None:
        """Ask for the topic's id, then call `_later`."""
        wanted = [(topic, self.topics_queues(topic))]

        def on_topics(code: int, payload: bytes) -> None:
            if code == layout.OK:
                self.known.learn(wanted, payload)
            self._later(link)

        link.ask(layout.TOPIC, encode_topics(wanted), on_topics)

    def topics_queues(self, topic: str) -> int:
        """Number of queues of the topic."""
        return self.topics.get(topic) or next(count for name, count in self.topics.items() if topic.startswith(name))

    def _pick_topic(self) -> str:
        name = self.random.choice(list(self.topics))
        # The one before, too: a sender goes on with an id that it knows while other topics come up.
        return (
            f"{name}{(self.world.now_ms // FRESH_MS - self.random.randint(0, 1)) % 1000}"
            if name.endswith("-")
            else name
        )

    def message(self, topic: str, key: bytes = b"", id_: bytes = b"") -> Sent:
        """A new message."""
        self.number += 1
        name = f"{self.name}#{self.number}"
        tag = TAGS[self.number % len(TAGS)]
        body = f"|{topic}|{name}|".encode() + b"x" * self.random.randint(0, self.bytes_max)
        fields = string(2, body) + (string(3, key) if key else b"") + string(4, tag.encode())
        if self.check_ids:
            fields += string(6, name.encode())
        return self.history.send(Sent(topic, name, self.number, fields + b"\0", key, tag))

    def _send(self, link: Link, durability: int, batches: Batches) -> None:
        unknown = {topic: self.topics_queues(topic) for topic, _, _ in batches if self.known.find(topic) is None}
        if not unknown:
            return self._append(link, durability, batches)
        wanted = list(unknown.items())
        self._unanswered = [(durability, batches)]

        def on_topics(code: int, payload: bytes) -> None:
            self._unanswered.clear()
            if code != layout.OK:
                self._refuse_all(batches, layout.UNAVAILABLE)
                return self._after_answer(link, durability, batches)
            self.known.learn(wanted, payload)
            for topic, queues in wanted:
                if queues < self.topics_queues(topic):
                    self.known.forget(topic)  # it has grown meanwhile, and is asked for again
            return self._send(link, durability, batches)

        link.ask(layout.TOPIC, encode_topics(wanted), on_topics)
        return None

    def _refuse(self, sent: Sent, code: int) -> None:
        if not self.check_ids:  # an earlier try may have stored it
            self.history.refused(sent, code)

    def _refuse_all(self, batches: Batches, code: int) -> None:
        for _, _, messages in batches:
            for sent in messages:
                self._refuse(sent, code)

    def _after_answer(self, link: Link, durability: int, refused: Batches) -> None:
        """Send refused messages with ids again, after a pause or on the next link; else go on."""
        if not self.check_ids or not refused or self._tries >= TRIES_MAX:
            self._tries = 0
            return self._later(link)
        self._tries += 1
        self._unanswered = [(durability, refused)]
        self.world.after(self.random.randint(1, AGAIN_MS_MAX), lambda: self._send_again(link))
        return None

    def _send_again(self, link: Link) -> None:
        if not link.closed and self._unanswered:  # else `on_ready` of the next link does it
            self._send(link, *self._unanswered.pop())

    def _append(self, link: Link, durability: int, batches: Batches) -> None:
        if self.keys:  # the topic may have grown while its id was asked for
            batches = [
                (topic, queue_of(messages[0].key, self.topics_queues(topic)), messages)
                for topic, _, messages in batches
            ]
        packed = []
        for topic, queue, messages in batches:
            topic_id = self.known.find(topic)
            assert topic_id is not None
            window_ms = ID_WINDOW_MS if self.check_ids else 0
            packed.append(encode_batch(topic_id, queue, [pack_record(sent.message) for sent in messages], window_ms))
        payload = layout.APPEND_HEAD.pack(durability, len(packed)) + b"".join(packed)
        if self.check_ids:
            self._unanswered = [(durability, batches)]

        def on_answer(code: int, answer: bytes) -> None:
            self._unanswered.clear()
            refused = batches
            if code == layout.OK:
                results = list(read_results(answer))
                for each, result in zip(batches, results, strict=True):
                    self._on_result(each, result, durability == layout.FSYNC)
                refused = [each for each, result in zip(batches, results, strict=True) if result[0] not in STORED]
            else:
                self._refuse_all(batches, code)
            self._after_answer(link, durability, refused)

        link.ask(layout.APPEND, payload, on_answer)

    def _on_result(self, batch: tuple[str, int, list[Sent]], result: tuple[int, int, int], durable: bool) -> None:
        topic, queue, messages = batch
        code, first_queue, offset = result
        if code == layout.UNKNOWN_TOPIC:
            self.known.forget(topic)
        for number, sent in enumerate(messages):
            if code == layout.OK:
                self.history.stored(sent, (topic, queue, offset + number), durable)
            elif code == layout.DUPLICATE:
                self.history.stored(sent, (topic, first_queue, offset), durable)
            else:
                self._refuse(sent, code)


class Operator(Client):
    """Sends one ADMIN verb, again until it is answered; `answer` is the engine's answer.

    Args:
        around: called before the request is sent and after its answer has come.
    """

    role = ADMIN_ROLE

    def __init__(self, engine: Engine, name: str, history: History, around: object = None, **request: object) -> None:
        super().__init__(engine, name, history)
        self.answer: dict | None = None
        self._around = around if callable(around) else lambda: None
        self._request = json.dumps(request).encode()

    def on_ready(self, link: Link) -> None:
        if self.answer is None:
            self._around()
            link.ask(layout.ADMIN, self._request, self._on_answer)

    def _on_answer(self, code: int, payload: bytes) -> None:
        self._around()
        if code == layout.OK:
            self.answer = json.loads(payload)
        elif self.link is not None and code >= layout.OVERLOADED:
            link = self.link
            self.world.after(RECONNECT_MS, lambda: None if link.closed else self.on_ready(link))
        else:
            self.answer = {}
