"""An entry of the repair journal that the repair has in hand."""

from typing import NamedTuple

from common.ids import show_id
from common.wire.names import find_names
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.ordering_keys import slot_of
from producer_proxy.journal.backlog import WaitingRepair


class TakenEntry(NamedTuple):
    """An entry in hand, read from the journal."""

    topic: str
    repair: WaitingRepair
    entry: BufferEntry

    @property
    def shown_id(self) -> str:
        """The id that its sender and both sides know."""
        if self.entry.assigned_id is not None:
            return show_id(self.entry.assigned_id)
        own = find_names(self.entry.message)[0]
        return "" if own is None else own.decode("utf-8", "replace")

    @property
    def id(self) -> tuple[str, str]:
        return self.topic, self.shown_id

    @property
    def binding(self) -> bytes | int | None:
        """What binds it to the primary's queue: by its key, both sides choose the same."""
        return self.entry.key if self.repair.queue is None else self.repair.queue

    @property
    def slot(self) -> tuple[str, int]:
        return self.topic, slot_of(self.entry.key)
