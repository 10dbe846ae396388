"""The fallback buffer as one object: its stores, the switch over them and a drainer for each."""

from collections.abc import Mapping
from functools import partial

from producer_proxy.buffer.drain import Drainer
from producer_proxy.buffer.fallback import FallbackBuffer
from producer_proxy.buffer.pace import PER_S
from producer_proxy.buffer.store import Store


class Buffering:
    """
    Args:
        stores: by name, in the order in which they are tried; owned from now on.
        drain_per_s: entries a second that one store gives back at most; fewer while the loop is busy.
    """

    def __init__(self, stores: Mapping[str, Store], drain_per_s: int = PER_S) -> None:
        self.stores, self._drain_per_s = dict(stores), drain_per_s
        self.drainers: dict[str, Drainer] = {}
        self.buffer: FallbackBuffer | None = None

    def over(self, view) -> FallbackBuffer:
        """The switch, with the topics' policies from the configuration."""

        def policy(name: str) -> str | None:
            definition = view.topic(name)
            return None if definition is None else definition.buffer

        self.buffer = FallbackBuffer(self.stores, policy)
        return self.buffer

    def start(self, topics, lane, front) -> None:
        """Begin to drain what is there; `front`: the hot path, if there is one, which is told what to leave to the slow one."""
        assert self.buffer is not None
        self.buffer.on_topic = topics.on_backlog
        if front is not None:
            self.buffer.on_suspicion = partial(setattr, front, "diverting")
        for name, store in self.stores.items():
            self.drainers[name] = Drainer(
                store, topics, lane.submit, self._drain_per_s,
                partial(self.buffer.held_by_others, store), self.buffer.engine_served,
            )  # fmt: skip

    def health(self) -> dict[str, bool | str]:
        """What /readyz shows: a store that takes nothing."""
        return {f"buffer {name}": store.fault() or True for name, store in self.stores.items()}

    def stop(self) -> None:
        for drainer in self.drainers.values():
            drainer.stop()
        for store in self.stores.values():
            store.close()
