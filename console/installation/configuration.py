"""The configuration for pages: from the store while there is contact, else the last state that is known."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from common.admin.administrator import Administrator, get
from common.clock import Clock
from common.config.definition import Definition
from common.config.definitions import ApplicationDefinition, GroupDefinition, TopicDefinition
from common.config.errors import EntryNotFound, InvalidDefinition, StoreDamaged, StoreUnavailable
from common.config.root_keys import RootKeys
from common.config.store import ConfigStore
from common.config.view import ConfigView
from console.installation.name_index import NameIndex

D = TypeVar("D", bound=Definition)


class Shown(NamedTuple):
    """A definition and its version; None: it is of a family, or from the last known state."""

    definition: Definition
    version: int | None


class Configuration:
    """
    Args:
        url: of the store; empty: the coordination of replicas beside it is not looked at.
        root_keys: as administrative verbs use it.
    """

    def __init__(
        self, store: ConfigStore, view: ConfigView, clock: Clock, url: str = "",
        root_keys: Callable[[], RootKeys] = RootKeys,
    ) -> None:  # fmt: skip
        self.store, self.view, self._clock, self.url, self._root_keys = store, view, clock, url, root_keys
        self.names = NameIndex(view)

    def admin(self, who: str) -> Administrator:
        """The context of administrative verbs, with the person as the author."""
        return Administrator(self.store, f"console:{who}", self._clock, self._root_keys)

    def away(self) -> str:
        """Why pages may show an old state; empty: they do not."""
        if self.view.damage is not None:
            return f"The configuration store is not followed: {self.view.damage}"
        if self.view.age_s == 0.0:
            return ""
        return (
            f"The configuration store does not answer. Pages show the state of {self.view.age_s:.0f} seconds ago, "
            "and changes are not possible."
        )

    def topic(self, name: str) -> Shown | None:
        """A topic with its own entry or by its family."""
        return self._shown(TopicDefinition, name) or _unversioned(self.view.topic(name))

    def rate_of(self, name: str) -> int | None:
        """The limit of a topic in messages/s, by the followed state; None: there is no such topic."""
        found = self.view.topic(name)
        return None if found is None else found.rate_messages

    def has_topic(self, name: str) -> bool:
        """Whether a topic has an entry of its own; one of a family may be asked for."""
        found = self.topic(name)
        return found is not None and getattr(found.definition, "family", None) is None

    def group(self, name: str) -> Shown | None:
        return self._shown(GroupDefinition, name) or _unversioned(self.view.group(name))

    def application(self, name: str) -> Shown | None:
        return self._shown(ApplicationDefinition, name) or _unversioned(self.view.application(name))

    def _shown(self, kind: type[D], name: str) -> Shown | None:
        """The store's entry; None: it has none, it cannot be read, or it is away."""
        if self.view.age_s > 0.0:
            return None
        try:
            return Shown(*get(Administrator(self.store, "console", self._clock), kind, name))
        except (EntryNotFound, InvalidDefinition, StoreUnavailable, StoreDamaged):
            return None


def _unversioned(definition: Definition | None) -> Shown | None:
    return None if definition is None else Shown(definition, None)
