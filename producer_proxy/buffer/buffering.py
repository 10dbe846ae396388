"""The fallback buffer as one object: its stores, the switch over them, and a drainer per store."""

from collections.abc import Callable, Mapping
from functools import partial

from common.readiness import Note
from producer_proxy.buffer.drain import Drainer
from producer_proxy.buffer.fallback import FallbackBuffer, no_suspicion
from producer_proxy.buffer.ordering_keys import OnTopic, no_change
from producer_proxy.buffer.pace import PER_S
from producer_proxy.buffer.store import BufferStore
from producer_proxy.targets.topics import Topics, TopicView


class Buffering:
    """Stores, switch and drainers of one proxy.

    Args:
        stores: by name, in the order in which they are tried; owned from now on.
        drain_per_s: maximum entries per second that one store drains; fewer while the loop is busy.
    """

    def __init__(self, stores: Mapping[str, BufferStore], drain_per_s: int = PER_S) -> None:
        self.stores, self._drain_per_s = dict(stores), drain_per_s
        self.drainers: dict[str, Drainer] = {}
        self.buffer: FallbackBuffer | None = None

    def over(
        self, view: TopicView, on_topic: OnTopic = no_change, on_suspicion: Callable[[bool], None] = no_suspicion
    ) -> FallbackBuffer:
        """The switch, with the topics' policies from the configuration; see FallbackBuffer for the callbacks."""

        def policy(name: str) -> str | None:
            definition = view.topic(name)
            return None if definition is None else definition.buffer

        self.buffer = FallbackBuffer(self.stores, policy, on_topic, on_suspicion)
        return self.buffer

    def start(self, topics: Topics) -> None:
        """Begin to drain."""
        assert self.buffer is not None
        for name, store in self.stores.items():
            wait_for = partial(self.buffer.held_by_others, store)
            self.drainers[name] = Drainer(store, topics, self._drain_per_s, wait_for, self.buffer.engine_served)

    def health(self) -> dict[str, bool | str]:
        """For /readyz: by store True, or the reason why it takes nothing; while it has no room, a note."""
        return {f"buffer {name}": store.fault() or _note(store.refusal()) for name, store in self.stores.items()}

    def stop(self) -> None:
        for drainer in self.drainers.values():
            drainer.stop()
        for store in self.stores.values():
            store.close()


def _note(refusal: str | None) -> bool | str:
    return Note(refusal) if refusal else True
