"""Destinations at the engine: looked up once per topic, checked against the configuration, kept up to a bound."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import gevent

from common.breaker import State
from common.config.definitions import TopicDefinition
from common.config.text_values import ENGINE_HOME
from common.names import stored_name
from common.placement import topic_hash
from engine.client.append import Destination, Destinations
from engine.client.brokers import Broker, Brokers
from engine.client.durability import number_of
from engine.link import layout
from producer_proxy.targets.base import NOBODY, Asker, ResolveError
from producer_proxy.targets.topic_view import TopicView

RESOLVE_TIMEOUT_S = 3.0
SILENT_S = 1.0
"""Age of an unanswered question from which on no other one waits for the only engine: the bound of its breaker. With
several groups, the time that the first question waits while none of them answers."""
LOOK_UPS_MAX = 3
"""Look-ups of one call. An answer is void when an engine has started again meanwhile: its ids may be another log's."""
OTHERS_TIMEOUT_S = 0.25  # for the other broker groups after the first answer
INCOMPLETE_S = 0.5  # lifetime of a destination that lacks its id at some broker group
# 200 MB at most, 200 bytes per topic in use: see bench/append.py. A send to an evicted topic must ask the broker, which
# costs many times the send. So a bound below the number of topics in use slows sends at once.
DESTINATIONS_MAX = 1_000_000


class BacklogMarks(Protocol):
    """The part of the fallback buffer by which destinations are marked as buffered."""

    def has_backlog(self, topic: str) -> bool: ...

    def takes(self, topic: str) -> bool: ...


class EngineTopics:
    """Destinations by name, each looked up at its first use.

    A change of the configuration evicts none of them: a destination is checked against its topic's definition before it
    is used.

    Args:
        view: the configuration.
        brokers: give topics their ids.
        known: the destinations in use; the hot path looks them up there.
        buffer: the fallback buffer, if there is one.
        fit: called as (destination, definition) before a destination is used under a definition for the first time.
    """

    def __init__(
        self,
        view: TopicView,
        brokers: Brokers,
        known: Destinations,
        buffer: BacklogMarks | None = None,
        fit: Callable[[Destination, TopicDefinition], None] = lambda destination, topic: None,
    ) -> None:
        self._view, self._brokers, self._buffer, self._fit = view, brokers, buffer, fit
        self.known = known
        self._asked_at: list[float] = []  # of open questions to the only engine, the oldest first
        self._is_silent = False  # the last of these questions timed out
        self._incomplete: set[bytes] = set()  # names of destinations without an id at some broker group

    def is_right(self, destination: Destination) -> bool:
        """Whether a destination still agrees with its topic's definition; changeable fields are updated in place."""
        self._mark(destination)
        topic = self._view.topic(destination.name.decode())
        if topic is None or not _fits(destination, topic):
            return False
        self._fit(destination, topic)
        return True

    def resolve(
        self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker
    ) -> dict[str, Destination]:
        """Destinations of these topics; blocks the greenlet while broker groups are asked for those not known yet.

        Raises:
            ResolveError: the broker did not answer, or the application may create no more topics.
        """
        found, missing = {}, {}
        for name, definition in definitions.items():
            destination = self.known.get(name.encode())
            if destination is not None and _fits(destination, definition):
                if destination.checked_at != generation & 0xFFFFFFFF:
                    self._fit(destination, definition)
                found[name] = destination
            else:
                missing[name] = definition
        if missing:
            found |= self._look_up(missing, asker)
        for destination in found.values():
            destination.checked_at = generation & 0xFFFFFFFF
            self._mark(destination)
        return found

    def renewed(self, names: Iterable[str]) -> dict[str, Destination]:
        """As `resolve`, of those that still are at the engine, for messages that have waited since. Raises ResolveError."""
        generation = self._view.generation
        found = {name: topic for name in names if (topic := self._view.topic(name)) is not None}
        here = {name: topic for name, topic in found.items() if ENGINE_HOME in (topic.home, topic.secondary)}
        return self.resolve(here, generation, NOBODY)

    def _mark(self, destination: Destination) -> None:
        if self._buffer is not None:
            name = destination.name.decode()
            destination.diverted = self._buffer.has_backlog(name)
            destination.buffered = destination.diverted or self._buffer.takes(name)

    def _look_up(self, definitions: Mapping[str, TopicDefinition], asker: Asker) -> dict[str, Destination]:
        for _ in range(LOOK_UPS_MAX):
            generation = self._brokers.generation
            made = self._ask(definitions, asker)
            if generation == self._brokers.generation:
                break
        else:
            raise ResolveError(layout.UNAVAILABLE, "the engine has started again while it was asked; send again")
        for name, destination in made.items():
            self._fit(destination, definitions[name])
            self.known.put(destination)
        return made

    def _ask(self, definitions: Mapping[str, TopicDefinition], asker: Asker) -> dict[str, Destination]:
        only = self._brokers.only
        if only is None:
            return self._ask_groups(definitions, asker)
        return self._ask_only(only, definitions, asker)

    def _ask_only(
        self, broker: Broker, definitions: Mapping[str, TopicDefinition], asker: Asker
    ) -> dict[str, Destination]:
        self._check_answers(broker)
        asked_at, code = time.monotonic(), layout.UNAVAILABLE
        self._asked_at.append(asked_at)
        try:
            code, answer = broker.rpc.call(
                layout.TOPIC, _question(definitions, asker), min(RESOLVE_TIMEOUT_S, asker.timeout_s)
            )
        finally:
            self._asked_at.remove(asked_at)
            # A question whose asker waits for less tells nothing of the engine.
            self._is_silent = code == layout.TIMEOUT and time.monotonic() - asked_at >= SILENT_S
        if code == layout.TIMEOUT:  # of the question; the messages were not sent
            raise ResolveError(layout.UNAVAILABLE, "the engine did not answer in time; nothing was stored")
        if code != layout.OK:
            raise ResolveError(code, answer.decode("utf-8", "replace"))
        answers = json.loads(answer)["topics"]
        return {
            name: _destination(topic, given["id"], given["queues"])
            for (name, topic), given in zip(definitions.items(), answers, strict=True)
        }

    def _check_answers(self, broker: Broker) -> None:
        """Raise ResolveError at once while the engine is away or silent; one question at a time then tries it."""
        if broker.rpc.hello is not None and not broker.rpc.connected:
            raise ResolveError(layout.UNAVAILABLE, "the engine cannot be reached; nothing was stored")
        breaker, asked_at = broker.breaker, self._asked_at
        is_hanging = breaker.state is State.OPEN and not breaker.refusing
        if is_hanging or (asked_at and (self._is_silent or time.monotonic() - asked_at[0] > SILENT_S)):
            raise ResolveError(layout.OVERLOADED, "the engine does not answer; nothing was stored")

    def _ask_groups(self, definitions: Mapping[str, TopicDefinition], asker: Asker) -> dict[str, Destination]:
        """Ask each broker group about the topics of which it holds queues.

        The queues of a group that does not answer stay unused for now.
        """
        homes = {name: self._homes(name, topic.queues) for name, topic in definitions.items()}
        asked = {
            broker.number: {name: topic for name, topic in definitions.items() if broker.number in homes[name]}
            for broker in self._brokers.listed
        }
        given = self._gather({number: topics for number, topics in asked.items() if topics}, asker)
        made = {}
        for name, topic in definitions.items():
            found = {number: topics[name] for number, topics in given.items() if name in topics}
            if not found:
                raise self._no_answer(name, homes[name])
            # The minimum: queues are only added, and a group that was down may not have the new ones yet.
            queues = min(each["queues"] for each in found.values())
            ids = b"".join(layout.U32.pack(found.get(number, {"id": 0})["id"]) for number in range(max(asked) + 1))
            homes_of = homes[name] if queues == topic.queues else self._homes(name, queues)
            made[name] = _destination(topic, 0, queues, homes_of, ids)
            if not set(homes_of[topic.first_queue :]) <= found.keys():
                self._evict_soon(name.encode())
        return made

    def _no_answer(self, name: str, homes: bytes) -> ResolveError:
        """OVERLOADED while a group of the topic hangs, as with a single engine; UNAVAILABLE when all are away."""
        if any(broker.number in homes and broker.rpc.connected for broker in self._brokers.listed):
            return ResolveError(
                layout.OVERLOADED, f"topic={name}: no broker group that holds it answers in time; nothing was stored"
            )
        return ResolveError(layout.UNAVAILABLE, f"topic={name}: no broker group that holds it answers")

    def _homes(self, name: str, queues: int) -> bytes:
        try:
            return self._brokers.homes(topic_hash(name.encode()), queues)
        except ValueError as error:
            raise ResolveError(layout.UNAVAILABLE, str(error)) from error

    def _gather(
        self, asked: dict[int, dict[str, TopicDefinition]], asker: Asker
    ) -> dict[int, dict[str, dict[str, Any]]]:
        """Answers about topics by group number, of the groups that answer in time.

        A group whose last appends were late is asked too: without its topic id, no key of it could be sent.
        """
        usable = {each.number: each for each in self._brokers.listed if not (each.breaker.refusing or each.is_silent)}
        questions = {number: _question(topics, asker) for number, topics in asked.items() if number in usable}
        timeout_s = min(SILENT_S, asker.timeout_s)
        answers = self._brokers.router.gather(layout.TOPIC, questions, timeout_s, OTHERS_TIMEOUT_S)
        for number, (code, _) in answers.items():
            if code == layout.TIMEOUT and timeout_s == SILENT_S:
                usable[number].note_silence()
        for code, answer in answers.values():
            if code == layout.QUOTA_EXCEEDED:
                raise ResolveError(code, answer.decode("utf-8", "replace"))
        return {
            number: dict(zip(asked[number], json.loads(answer)["topics"], strict=True))
            for number, (code, answer) in answers.items()
            if code == layout.OK
        }

    def _evict_soon(self, name: bytes) -> None:
        """Evict the destination after INCOMPLETE_S, so that the next message asks for the missing ids."""
        if not self._incomplete:
            gevent.spawn_later(INCOMPLETE_S, self._evict_incomplete)
        self._incomplete.add(name)

    def _evict_incomplete(self) -> None:
        names, self._incomplete = self._incomplete, set()
        for name in names:
            self.known.discard(name)


def _question(definitions: Mapping[str, TopicDefinition], asker: Asker) -> bytes:
    asked = [{"name": stored_name(name, topic.made_ms), "queues": topic.queues} for name, topic in definitions.items()]
    return json.dumps({"topics": asked, "application": asker.application}).encode()


def _destination(
    topic: TopicDefinition, topic_id: int, queues: int, homes: bytes | None = None, ids: bytes | None = None
) -> Destination:
    name, durability = topic.name.encode(), number_of(topic.durability)
    made = Destination(
        name, topic_id, queues, durability, topic.body_bytes_max, topic.id_window_ms, homes, ids, topic.first_queue
    )
    made.made_ms = topic.made_ms
    return made


def _fits(destination: Destination, topic: TopicDefinition) -> bool:
    """Whether the destination agrees with the definition. The broker may have more queues: they are only ever added."""
    return (
        destination.lane is None
        and ENGINE_HOME in (topic.home, topic.secondary)
        and destination.made_ms == topic.made_ms
        and destination.queues >= topic.queues
        and destination.first_queue == topic.first_queue
        and destination.durability == number_of(topic.durability)
        and destination.body_bytes_max == topic.body_bytes_max
        and destination.id_window_ms == topic.id_window_ms
    )
