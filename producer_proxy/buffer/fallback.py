"""The switch: decides by topic, by ordering key and by the state of the engine which messages go into the buffer.

A message of a buffered topic is diverted when the engine has failed it, when its key has a backlog, or while the engine
is suspected. The engine is suspected from a timeout or a broken link until a drain has succeeded: the drain is the
probe.
"""

from collections.abc import Callable, Mapping, Sequence

from common.contract import Code
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.ordering_keys import OnTopic, no_change
from producer_proxy.buffer.store import BufferStore

DIVERTED_CODES = frozenset((Code.OVERLOADED, Code.UNAVAILABLE, Code.DISK_FULL, Code.TIMEOUT, Code.FENCED))
"""Codes of a broker or a lane that divert a message of a buffered topic.

TIMEOUT: the engine may have the message too, under the same id. FENCED: of the proxy itself, while the topic's home
changes; never on the hot path.
"""
MARGIN_SHARE, MARGIN_S_MAX = 0.25, 0.2
PATIENCE_S_MAX = 1.0
"""Where a hanging server has no other that takes over."""
SUSPICION_S_MIN = 0.5
"""Shorter waits do not make the engine suspected: otherwise one client with short timeouts would divert all others."""


def patience_s(timeout_s: float, switch_s: float = 0.0) -> float:
    """The longest wait of a buffered message for its target: storing it has to fit into the caller's time as well.

    Args:
        switch_s: see SendTarget.switch_s. A message that is diverted before would be stored by the next server, too.
    """
    return min(max(PATIENCE_S_MAX, switch_s), timeout_s - min(timeout_s * MARGIN_SHARE, MARGIN_S_MAX))


def no_suspicion(suspected: bool) -> None:
    """Callback of a buffer without a hot path: does nothing."""


class FallbackBuffer:
    """The switch over the stores.

    Args:
        stores: this proxy's stores by name, `disk` and `redis`.
        policy_of: a topic's `buffer` setting by its name; None: the topic is not defined.
        on_topic: called as (topic, diverted) when a topic gets a backlog and when it has none left.
        on_suspicion: called with True or False when the engine becomes suspected, and when it is trusted again.
    """

    def __init__(
        self, stores: Mapping[str, BufferStore], policy_of: Callable[[str], str | None], on_topic: OnTopic = no_change,
        on_suspicion: Callable[[bool], None] = no_suspicion,
    ) -> None:  # fmt: skip
        self.stores = dict(stores)
        self._policy_of = policy_of
        self._suspected = False
        self.stored = self.refused = 0
        self._on_topic, self._on_suspicion = on_topic, on_suspicion
        for store in self.stores.values():
            store.ordering_keys.watch(lambda topic, diverted: self._on_topic(topic, self.has_backlog(topic)))
            store.on_known = self._on_known
        self._awaiting: set[str] = set()  # topics that were diverted for a backlog that is not known

    def takes(self, topic: str) -> bool:
        """Whether the topic has a buffer here."""
        return bool(self._chain(topic))

    def has_backlog(self, topic: str) -> bool:
        """Whether messages of the topic wait, or may wait in a store that does not answer since the start."""
        if self._awaits(topic):
            self._awaiting.add(topic)
            return True
        return any(topic in store.ordering_keys.topics() for store in self.stores.values())

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a message must be buffered because earlier ones of its key are.

        A backlog counts even after the topic's buffer was switched off.
        """
        return self._awaits(topic) or any(store.ordering_keys.holds(topic, key) for store in self.stores.values())

    def _awaits(self, topic: str) -> bool:
        """Whether a store before the last one of the topic may have entries of it that are not known yet."""
        return any(store.awaits(topic) for store in self._chain(topic)[:-1])

    def _on_known(self) -> None:
        awaiting, self._awaiting = self._awaiting, set()
        for topic in awaiting:
            self._on_topic(topic, self.has_backlog(topic))

    @property
    def suspects_engine(self) -> bool:
        """Whether messages for the engine are buffered without being sent there."""
        return self._suspected

    def engine_failed(self, waited_s: float) -> None:
        """Suspect the engine: it did not answer within this time; infinity: its link broke."""
        if not self._suspected and waited_s >= SUSPICION_S_MIN:
            self._suspected = True
            self._on_suspicion(True)

    def engine_served(self) -> None:
        """Trust the engine again: it took a drained batch, or no entry is left as a probe."""
        if self._suspected:
            self._suspected = False
            self._on_suspicion(False)

    def put(self, entries: Sequence[BufferEntry]) -> list[BufferError_ | None]:
        """Store entries durably, in order; return None per stored entry, else the reason. Blocks the greenlet."""
        errors: list[BufferError_ | None] = [None] * len(entries)
        for chain, topics in self._by_chain(entries).items():
            at = [index for index, entry in enumerate(entries) if entry.topic in topics]
            try:
                self._put([entries[index] for index in at], chain)
                self.stored += len(at)
            except BufferError_ as error:
                self.refused += len(at)
                for index in at:
                    errors[index] = error
        if not any(store.room.entries for store in self.stores.values()):
            self.engine_served()
        return errors

    def held_by_others(self, store: BufferStore) -> set[str]:
        """Topics that another store must drain first.

        A store gets entries only after the store before it in the chain has refused them.
        """
        order = list(self.stores.values())
        held = {topic for before in order[: order.index(store)] for topic in before.ordering_keys.topics()}
        return held | {topic for topic in store.ordering_keys.topics() if self._awaits(topic)}

    def _by_chain(self, entries: Sequence[BufferEntry]) -> dict[tuple[BufferStore, ...], set[str]]:
        groups: dict[tuple[BufferStore, ...], set[str]] = {}
        for topic in {entry.topic for entry in entries}:
            groups.setdefault(self._takers(topic), set()).add(topic)
        return groups

    def _put(self, entries: list[BufferEntry], chain: Sequence[BufferStore]) -> None:
        """Store entries in the first store of the topics' chain that takes them.

        An entry is never stored ahead of a later store's backlog.
        """
        if not chain:
            raise BufferUnavailable("buffer: it was switched off for this topic; nothing was stored")
        with_backlog = [
            number
            for number, store in enumerate(chain)
            if any(store.ordering_keys.holds(entry.topic, entry.key) for entry in entries)
        ]
        uncertain: BufferUncertain | None = None
        for number, store in enumerate(chain):
            if number < max(with_backlog, default=0):
                continue
            try:
                store.put(entries)
                break
            except BufferError_ as error:
                uncertain = error if isinstance(error, BufferUncertain) else uncertain
                if store is chain[-1]:
                    raise uncertain or error from None  # one store may have them: "not stored" would be untrue

    def _takers(self, topic: str) -> tuple[BufferStore, ...]:
        """The stores of the topic's policy, and those with entries of it: all of them where it is off, else the later ones.

        A key that has entries in a later store, of an earlier policy, goes there: an earlier store is drained first.
        A store that awaits earlier entries leaves these to the next: it would drain them without waiting.
        """
        chain, order = self._chain(topic), list(self.stores.values())
        later = order[order.index(chain[-1]) + 1 :] if chain else order
        takers = [store for store in chain[:-1] if not store.awaits(topic)] + chain[-1:]
        return *takers, *(store for store in later if topic in store.ordering_keys.topics())

    def _chain(self, topic: str) -> list[BufferStore]:
        policy = self._policy_of(topic) or "off"
        return [self.stores[name] for name in policy.split("+") if name in self.stores]
