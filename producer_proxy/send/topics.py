"""From a topic's name to where its messages go: the definition from the configuration, the id from the broker."""

import json

import gevent

from common.config.definitions import TopicDefinition
from common.contract import Durability
from common.placement import topic_hash
from engine.client.append import Destination, Destinations
from engine.client.brokers import Broker, Brokers
from engine.link import layout
from producer_proxy.buffer.fallback import FallbackBuffer

RESOLVE_TIMEOUT_S = 3.0
OTHERS_TIMEOUT_S = 0.25  # for all other broker groups once one has answered
UNKNOWN_S = 0.5  # how long a topic's id at a group that did not answer stays unasked
# 200 MB at most, 200 bytes for each topic in use: see bench/append.py. A send to one that is not there has to ask the broker, which
# costs many times the send, so less than the number of topics in use would be felt at once.
DESTINATIONS_MAX = 1_000_000
_DURABILITY = {"memory": layout.MEMORY}  # a lone master serves every other class by its disk


class ResolveError(Exception):
    """The broker could not be asked; `code` is the contract's. Retriable."""

    def __init__(self, code: int, sentence: str):
        super().__init__(sentence)
        self.code = code


class Topics:
    """Destinations by name, asked for once each; those that are sent to stay, up to a bound.

    A change of the configuration forgets none of them: a destination is held against its topic's definition before it is used.

    Args:
        view: the configuration.
        brokers: who gives topics their ids.
        known: where the destinations are; the hot path finds them there.
        buffer: the fallback buffer, where there is one: destinations carry a mark of it.
        fit: called as (destination, definition) before a destination is used under a definition for the first time.
    """

    def __init__(
        self,
        view,
        brokers: Brokers,
        known: Destinations | None = None,
        buffer: FallbackBuffer | None = None,
        fit=lambda destination, topic: None,
    ):
        self._view, self._brokers, self._buffer, self._fit = view, brokers, buffer, fit
        self.known = Destinations(DESTINATIONS_MAX) if known is None else known
        self._incomplete: set[bytes] = set()  # names of destinations without an id at some broker group

    def defined(self, name: str) -> bool:
        return self._view.topic(name) is not None

    def is_right(self, destination: Destination) -> bool:
        """Whether it still is what its topic's definition says; what may change in place then does."""
        self._mark(destination)
        topic = self._view.topic(destination.name.decode())
        if not _fits(destination, topic):
            return False
        self._fit(destination, topic)
        return True

    def definition(self, name: str) -> TopicDefinition | None:
        return self._view.topic(name)

    def find(self, names: list[str]) -> dict[str, Destination]:
        """Destinations of defined topics; blocks the greenlet while the broker is asked for those not known yet.

        Raises:
            ResolveError: the broker did not answer.
        """
        found, missing = {}, {}
        generation = self._view.generation  # before the look-ups: it may change while the broker is asked
        for name in dict.fromkeys(names):
            definition = self._view.topic(name)
            destination = self.known.get(name.encode())
            if destination is not None and _fits(destination, definition):
                if destination.checked_at != generation & 0xFFFFFFFF:
                    self._fit(destination, definition)
                found[name] = destination
            else:
                missing[name] = definition
        if missing:
            found |= self._ask(missing)
        for destination in found.values():
            destination.checked_at = generation & 0xFFFFFFFF
            self._mark(destination)
        return found

    def on_backlog(self, name: str, diverted: bool) -> None:
        """The topic has got a backlog in the buffer, or none any more."""
        destination = self.known.get(name.encode())
        if destination is not None:
            destination.diverted = diverted

    def _mark(self, destination: Destination) -> None:
        if self._buffer is not None:
            name = destination.name.decode()
            destination.diverted = self._buffer.has_backlog(name)
            destination.buffered = destination.diverted or self._buffer.takes(name)

    def _ask(self, definitions: dict[str, TopicDefinition]) -> dict[str, Destination]:
        only = self._brokers.only
        made = self._ask_many(definitions) if only is None else self._ask_one(only, definitions)
        for name, destination in made.items():
            self._fit(destination, definitions[name])
            self.known.put(destination)
        return made

    def _ask_one(self, broker: Broker, definitions: dict[str, TopicDefinition]) -> dict[str, Destination]:
        code, answer = broker.rpc.call(layout.TOPIC, _question(definitions), RESOLVE_TIMEOUT_S)
        if code != layout.OK:
            raise ResolveError(code, answer.decode("utf-8", "replace"))
        return {
            name: Destination(
                name.encode(),
                given["id"],
                given["queues"],
                _durability(topic),
                topic.body_bytes_max,
                topic.id_window_ms,
            )
            for (name, topic), given in zip(definitions.items(), json.loads(answer)["topics"], strict=True)
        }

    def _ask_many(self, definitions: dict[str, TopicDefinition]) -> dict[str, Destination]:
        """Ask each broker group for what it holds queues of. One that does not answer leaves its queues unused for a moment."""
        homes = {name: self._homes(name, topic.queues) for name, topic in definitions.items()}
        asked = {
            broker.number: {name: topic for name, topic in definitions.items() if broker.number in homes[name]}
            for broker in self._brokers.listed
        }
        given = self._gather({number: topics for number, topics in asked.items() if topics})
        made = {}
        for name, topic in definitions.items():
            found = {number: topics[name] for number, topics in given.items() if name in topics}
            if not found:
                raise ResolveError(layout.UNAVAILABLE, f"no broker group that holds topic {name} answers")
            # As many as all have: they only grow, and one that was away may have missed that.
            queues = min(each["queues"] for each in found.values())
            ids = b"".join(layout.U32.pack(found.get(number, {"id": 0})["id"]) for number in range(max(asked) + 1))
            homes_of = homes[name] if queues == topic.queues else self._homes(name, queues)
            made[name] = Destination(
                name.encode(), 0, queues, _durability(topic), topic.body_bytes_max, topic.id_window_ms, homes_of, ids
            )
            if not set(homes_of) <= found.keys():
                self._ask_again(name.encode())
        return made

    def _homes(self, name: str, queues: int) -> bytes:
        try:
            return self._brokers.homes(topic_hash(name.encode()), queues)
        except ValueError as error:
            raise ResolveError(layout.UNAVAILABLE, str(error)) from error

    def _gather(self, asked: dict[int, dict[str, TopicDefinition]]) -> dict[int, dict[str, dict]]:
        """What each group of this number says of its topics, of those that answer in time."""
        calls = {
            broker.number: gevent.spawn(
                broker.rpc.call, layout.TOPIC, _question(asked[broker.number]), RESOLVE_TIMEOUT_S
            )
            for broker in self._brokers.listed
            if broker.number in asked and broker.breaker.share
        }
        gevent.joinall(list(calls.values()), timeout=RESOLVE_TIMEOUT_S, count=1)
        gevent.joinall(list(calls.values()), timeout=OTHERS_TIMEOUT_S)
        given = {}
        for number, call in calls.items():
            code, answer = call.value if call.successful() else (layout.TIMEOUT, b"")
            if code == layout.OK:
                given[number] = dict(zip(asked[number], json.loads(answer)["topics"], strict=True))
            call.kill(block=False)
        return given

    def _ask_again(self, name: bytes) -> None:
        """Forget the destination soon, so that the next message asks for the ids that are missing."""
        if not self._incomplete:
            gevent.spawn_later(UNKNOWN_S, self._forget_incomplete)
        self._incomplete.add(name)

    def _forget_incomplete(self) -> None:
        names, self._incomplete = self._incomplete, set()
        for name in names:
            self.known.discard(name)


def _question(definitions: dict[str, TopicDefinition]) -> bytes:
    asked = [{"name": name, "queues": topic.queues} for name, topic in definitions.items()]
    return json.dumps({"topics": asked}).encode()


def _durability(topic: TopicDefinition) -> int:
    return _DURABILITY.get(topic.durability, layout.FSYNC)


def _fits(destination: Destination, topic: TopicDefinition | None) -> bool:
    """The broker may have more queues than defined, never fewer: they only grow."""
    return (
        topic is not None
        and destination.queues >= topic.queues
        and destination.durability == _durability(topic)
        and destination.body_bytes_max == topic.body_bytes_max
        and destination.id_window_ms == topic.id_window_ms
    )


def binding_of(message, destination: Destination) -> bytes | None:
    """What ties a message to one queue; None: any of the topic's will do.

    It is its key, or else its own id where ids bind.
    """
    if message.key is not None:
        return message.key.encode()
    return message.id.encode() if message.id is not None and ids_bind(destination) else None


def ids_bind(destination: Destination) -> bool:
    """Whether ids that clients chose lead to a queue: where they are checked, and each of several broker groups knows its own only."""
    return destination.id_window_ms > 0 and destination.homes is not None


def lane_of(asked: int, destination: Destination) -> int:
    """0 MEMORY or 1 FSYNC, for a call's durability (0: the topic's)."""
    wanted = asked or destination.durability
    return 0 if wanted == Durability.MEMORY else 1
