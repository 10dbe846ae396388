"""Requests of the link, one function an operation. Works on either form of connection.

A connection has `peer_state` (Peer), `send_frame(op, request_id, code, parts)`, `trust()`, `close(reason)`. Everything
here runs in the loop and may not wait for anything; cold reads are the exception that the log documents.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping

from common.limits.lender import QuotaLender
from engine.delivery.delivery import Delivery
from engine.errors import EngineError
from engine.link import layout
from engine.replies.exchange import Exchange
from engine.server.codec import checked_name, decode_pull, encode_pull_answer
from engine.server.errors import RequestError
from engine.server.ops.admin import Admin
from engine.server.ops.lag import Depths
from engine.server.ops.lease import lend
from engine.server.ops.read import Reader, Reading
from engine.server.peer import Greeter, Peer

log = logging.getLogger("penstock.engine")
GREETING_MS = 10_000
TOPICS_A_REQUEST = 10_000


def monotonic_ms() -> int:
    """The clock of all deadlines."""
    return time.monotonic_ns() // 1_000_000


class Service:
    """What one engine answers.

    Args:
        store: the log.
        wake: called when something waits for time to pass, so that `on_time()` is called until nothing does.
    """

    def __init__(
        self, store, delivery: Delivery, greeter: Greeter, admin: Admin, exchange: Exchange, wake: Callable[[], None]
    ) -> None:
        self.store, self.delivery = store, delivery
        self.stopping = False
        self.strangers: set = set()
        self.reader = Reader(store)
        self._greeter, self._wake, self.exchange = greeter, wake, exchange
        self._handlers = {
            layout.PULL: self._pull,
            layout.READ: self._read,
            layout.TOPIC: self._topic,
            layout.CANCEL: self._cancel,
            layout.ADMIN: self._admin,
            layout.LEASE: self._lease,
            layout.DEPTH: self._depth,
            layout.LISTEN: exchange.listen,
            layout.REPLY: self._reply,
            layout.FORWARDED: exchange.confirmed,
            layout.OUTCOME: exchange.outcome,
        }
        self._admin_verbs = admin
        self._lender = QuotaLender(time.monotonic())
        self.depths = Depths(store, delivery)

    def serve(self, handlers: Mapping[int, Callable]) -> None:
        """Answer these operations too."""
        self._handlers.update(handlers)

    # -- connections

    def new_peer(self, connection) -> Peer:
        """A connection was accepted; it has ten seconds to prove itself."""
        self.strangers.add(connection)
        self._wake()
        return Peer(monotonic_ms() + GREETING_MS)

    def on_closed(self, connection) -> None:
        """Forget what waits for it, so that nothing is leased to nobody."""
        self.strangers.discard(connection)
        waiting, connection.peer_state.waiting = connection.peer_state.waiting, {}
        for withdraw, _ in waiting.values():
            withdraw()
        self.exchange.on_closed(connection)

    def on_request(self, connection, op: int, request_id: int, payload: bytes) -> None:
        """Answer, at once or later; a stranger may only greet."""
        peer = connection.peer_state
        try:
            if not peer.authenticated:
                return self._greet(connection, peer, op, request_id, payload)
            handler = self._handlers.get(op)
            if handler is None:
                raise RequestError(f"op {op} is unknown to this engine")
            handler(connection, request_id, payload)
        except RequestError as error:
            self._refuse(connection, op, request_id, error.code, str(error))
        except EngineError as error:
            self._refuse(connection, op, request_id, error.code, str(error))
        except Exception:
            log.exception("link=%s op=%d: failed", peer.name, op)
            self._refuse(connection, op, request_id, layout.UNAVAILABLE, "the engine failed; its log says why")

    def _greet(self, connection, peer: Peer, op: int, request_id: int, payload: bytes) -> None:
        if op == layout.HELLO:
            try:
                connection.send_frame(op, request_id, layout.OK, [self._greeter.hello(peer, payload)])
            except RequestError as error:
                self._refuse(connection, op, request_id, error.code, str(error))
                connection.close_when_sent()
        elif op == layout.AUTH and self._greeter.prove(peer, payload):
            self.strangers.discard(connection)
            connection.trust()
            connection.send_frame(op, request_id, layout.OK, [])
        elif op == layout.AUTH:
            log.warning("link=%s: refused, it does not know the cluster key", peer.name)
            self._refuse(connection, op, request_id, layout.UNAUTHENTICATED, "the cluster key is another one")
            connection.close_when_sent()
        else:
            connection.close("not authenticated")

    # -- time and news

    def on_woken(self) -> None:
        """Records were appended, or fetched: serve who waits for them."""
        self.on_appended(self.store.take_woken())

    def on_appended(self, woken: list[tuple[int, int]]) -> None:
        """Serve who waits for records of these queues."""
        if woken:
            self.delivery.on_woken(woken, monotonic_ms())
            self.reader.on_woken(woken)

    def on_time(self) -> bool:
        """Do what is due; True while something waits for time to pass."""
        now_ms = monotonic_ms()
        upcoming = self.delivery.on_time(now_ms)
        reading = self.reader.on_time(now_ms)
        replying = self.exchange.on_time(now_ms)
        for connection in [each for each in self.strangers if each.peer_state.deadline_ms <= now_ms]:
            connection.close("did not authenticate in time")
        self.on_woken()
        return upcoming is not None or reading or replying or bool(self.strangers)

    # -- operations

    def _pull(self, connection, request_id: int, payload: bytes) -> None:
        request = decode_pull(payload)
        if self.stopping:
            request = request._replace(max_messages=0)

        def answer(pull) -> None:
            connection.peer_state.waiting.pop(request_id, None)
            connection.send_frame(layout.PULL, request_id, layout.OK, encode_pull_answer(pull))

        pull = self.delivery.pull(request, monotonic_ms(), answer)
        if pull.tick:
            self.wait(connection, request_id, lambda: self.delivery.cancel(pull), lambda: answer(pull))
        self._wake()

    def _read(self, connection, request_id: int, payload: bytes) -> None:
        def answer(reading: Reading) -> None:
            connection.peer_state.waiting.pop(request_id, None)
            connection.send_frame(layout.READ, request_id, layout.OK, reading.answer_parts())

        reading = Reading(payload, answer)
        if self.reader.start(reading, monotonic_ms(), may_wait=not self.stopping):
            self.wait(connection, request_id, lambda: self.reader.cancel(reading), lambda: answer(reading))
            self._wake()

    def wait(self, connection, request_id: int, withdraw, answer) -> None:
        """The request is answered later: by `answer()`, unless it is withdrawn."""
        connection.peer_state.waiting[request_id] = (withdraw, answer)

    def _cancel(self, connection, request_id: int, payload: bytes) -> None:
        waiting = connection.peer_state.waiting.pop(request_id, None)
        if waiting is not None:
            withdraw, answer = waiting
            withdraw()
            answer()

    def _reply(self, connection, request_id: int, payload: bytes) -> None:
        if self.exchange.reply(connection, request_id, payload, monotonic_ms()):
            self._wake()

    def _topic(self, connection, request_id: int, payload: bytes) -> None:
        wanted = _wanted_topics(payload)
        before = self.store.end_position
        topics = self.store.create_topics(wanted)
        found = {"topics": [{"id": topic.id, "queues": topic.queues} for topic in topics]}

        def answer() -> None:
            connection.send_frame(layout.TOPIC, request_id, layout.OK, [json.dumps(found).encode()])

        if self.store.end_position == before:
            answer()
        else:
            # An id that a crash takes back could be given to another topic, while proxies still append under it.
            self.store.when_durable(self.store.end_position, answer)

    def _admin(self, connection, request_id: int, payload: bytes) -> None:
        answer = self._admin_verbs.do(payload, monotonic_ms())
        self.on_woken()  # a verb may have stored messages
        connection.send_frame(layout.ADMIN, request_id, layout.OK, [json.dumps(answer).encode()])

    def _lease(self, connection, request_id: int, payload: bytes) -> None:
        answer = lend(self._lender, payload, time.monotonic())
        connection.send_frame(layout.LEASE, request_id, layout.OK, [json.dumps(answer).encode()])

    def _depth(self, connection, request_id: int, payload: bytes) -> None:
        answer = self.depths.answer(payload, monotonic_ms())
        connection.send_frame(layout.DEPTH, request_id, layout.OK, [json.dumps(answer).encode()])

    def _refuse(self, connection, op: int, request_id: int, code: int, sentence: str) -> None:
        connection.send_frame(op, request_id, code, [sentence.encode()])

    def release_waiting(self, connections) -> None:
        """Answer everything that waits with what it has: the engine is about to stop."""
        self.stopping = True
        for connection in connections:
            waiting, connection.peer_state.waiting = connection.peer_state.waiting, {}
            for withdraw, answer in waiting.values():
                withdraw()
                answer()


def _wanted_topics(payload: bytes) -> list[tuple[str, int]]:
    try:
        listed = json.loads(payload)["topics"]
        wanted = [(checked_name(each["name"], "topic"), each["queues"]) for each in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError('TOPIC: a JSON object {"topics": [{"name", "queues"}]}') from None
    if len(wanted) > TOPICS_A_REQUEST:
        raise RequestError(f"TOPIC: at most {TOPICS_A_REQUEST} topics in one request")
    if any(not isinstance(queues, int) or isinstance(queues, bool) or not 1 <= queues <= 65536 for _, queues in wanted):
        raise RequestError("queues: 1..65536")
    return wanted
