"""From a topic's name to where its messages go: the definition from the configuration, the id from the broker."""

import json
import logging

from common.config.definitions import TopicDefinition
from common.contract import Durability
from engine.client.append import Destination, Destinations
from engine.link import layout
from producer_proxy.buffer.fallback import FallbackBuffer

log = logging.getLogger("penstock.producer_proxy")
RESOLVE_TIMEOUT_S = 3.0
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
        rpc: the broker's link: `call(op, payload, timeout) -> (code, payload)`.
        known: where the destinations are; the hot path finds them there.
        buffer: the fallback buffer, where there is one: destinations carry a mark of it.
        fit: called as (destination, definition) before a destination is used under a definition for the first time.
    """

    def __init__(
        self,
        view,
        rpc,
        known: Destinations | None = None,
        buffer: FallbackBuffer | None = None,
        fit=lambda destination, topic: None,
    ):
        self._view, self._rpc, self._buffer, self._fit = view, rpc, buffer, fit
        self.known = Destinations(DESTINATIONS_MAX) if known is None else known
        self._log_id: str | None = None

    def on_hello(self, log_id: str) -> bool:
        """A link to the broker was opened; True when it holds another log than before, so that all ids are void."""
        changed = self._log_id is not None and self._log_id != log_id
        self._log_id = log_id
        if changed:
            log.warning("engine: another log (%s) than before; every topic is looked up anew", log_id)
            self.known.clear()
        return changed

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
        asked = [{"name": name, "queues": topic.queues} for name, topic in definitions.items()]
        code, payload = self._rpc.call(layout.TOPIC, json.dumps({"topics": asked}).encode(), RESOLVE_TIMEOUT_S)
        if code != layout.OK:
            raise ResolveError(code, payload.decode("utf-8", "replace"))
        made = {}
        for (name, topic), given in zip(definitions.items(), json.loads(payload)["topics"], strict=True):
            made[name] = Destination(
                name.encode(),
                given["id"],
                given["queues"],
                _durability(topic),
                topic.body_bytes_max,
                topic.id_window_ms,
            )
            self._fit(made[name], topic)
            self.known.put(made[name])
        return made


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


def lane_of(asked: int, destination: Destination) -> int:
    """0 MEMORY or 1 FSYNC, for a call's durability (0: the topic's)."""
    wanted = asked or destination.durability
    return 0 if wanted == Durability.MEMORY else 1
