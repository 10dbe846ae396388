"""From a topic's name to where its messages go: the definition from the configuration, the id from the broker."""

import json
import logging

from common.contract import Durability
from engine.client.append import Destination
from engine.link import layout

log = logging.getLogger("penstock.producer_proxy")
RESOLVE_TIMEOUT_S = 3.0
DESTINATIONS_MAX = 200_000
_DURABILITY = {"memory": layout.MEMORY}  # a lone master serves every other class by its disk


class ResolveError(Exception):
    """The broker could not be asked; `code` is the contract's. Retriable."""

    def __init__(self, code: int, sentence: str):
        super().__init__(sentence)
        self.code = code


class Topics:
    """Destinations by name, asked for once each.

    Args:
        view: the configuration.
        rpc: the broker's link: `call(op, payload, timeout) -> (code, payload)`.
    """

    def __init__(self, view, rpc):
        self._view, self._rpc = view, rpc
        self._known: dict[str, Destination] = {}
        self._log_id: str | None = None

    def forget(self) -> None:
        """Look every definition up anew; ids come back from the broker as they were."""
        self._known.clear()

    def on_hello(self, log_id: str) -> bool:
        """A link to the broker was opened; True when it holds another log than before, so that all ids are void."""
        changed = self._log_id is not None and self._log_id != log_id
        self._log_id = log_id
        if changed:
            log.warning("engine: another log (%s) than before; every topic is looked up anew", log_id)
            self.forget()
        return changed

    def defined(self, name: str) -> bool:
        return self._view.topic(name) is not None

    def find(self, names: list[str]) -> dict[str, Destination]:
        """Destinations of defined topics; blocks the greenlet while the broker is asked for those not known yet.

        Raises:
            ResolveError: the broker did not answer.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self._known]
        if missing:
            self._ask(missing)
        return {name: self._known[name] for name in names}

    def _ask(self, names: list[str]) -> None:
        definitions = [self._view.topic(name) for name in names]
        asked = [{"name": name, "queues": topic.queues} for name, topic in zip(names, definitions, strict=True)]
        code, payload = self._rpc.call(layout.TOPIC, json.dumps({"topics": asked}).encode(), RESOLVE_TIMEOUT_S)
        if code != layout.OK:
            raise ResolveError(code, payload.decode("utf-8", "replace"))
        if len(self._known) + len(names) > DESTINATIONS_MAX:
            self._known.clear()
        for name, topic, found in zip(names, definitions, json.loads(payload)["topics"], strict=True):
            durability = _DURABILITY.get(topic.durability, layout.FSYNC)
            self._known[name] = Destination(name, found["id"], found["queues"], durability, topic.body_bytes_max)


def lane_of(asked: int, destination: Destination) -> int:
    """0 MEMORY or 1 FSYNC, for a call's durability (0: the topic's)."""
    wanted = asked or destination.durability
    return 0 if wanted == Durability.MEMORY else 1
