"""Contents of a repair journal, bounded: for operators, who read them in the configuration."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.ids import show_id
from common.wire.names import find_names
from producer_proxy.buffer import blocks
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.disk.segment import bases
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.native import entries_at
from producer_proxy.journal.backlog import RepairBacklog
from producer_proxy.journal.missed import MissedRange

TOPICS_MAX, IDS_MAX = 50, 10
"""Topics that are told one by one, and ids per topic. More make every change of the entry larger."""
OTHER_TOPICS = "*"
READ_BYTES = 4 << 10, 64 << 10, blocks.BLOCK_BYTES_MAX
"""Sizes to read at an entry, until it is whole."""


def waiting(directory: Path, backlog: RepairBacklog, in_thread: Callable[..., Any]) -> dict[str, Any]:
    """Messages that wait for the secondary, by topic: their number, and the first of them as [queue, id].

    A queue is null where it is not known whether the primary has the message.

    Args:
        in_thread: calls a function with arguments, which reads files.
    """
    names = sorted(backlog.ordering_keys.topics())
    first = {name: backlog.first(name, IDS_MAX) for name in names[:TOPICS_MAX]}
    found: dict[str, Any] = {name: {"messages": backlog.count_of(name), "ids": []} for name in first}
    if rest := sum(backlog.count_of(name) for name in names[TOPICS_MAX:]):
        found[OTHER_TOPICS] = {"messages": rest, "ids": []}
    ids = in_thread(ids_at, directory, sorted(each.position for some in first.values() for each in some))
    for name, some in first.items():
        found[name]["ids"] = [[each.queue, shown] for each in some if (shown := ids.get(each.position))]
    return found


def ids_at(directory: Path, positions: Sequence[int]) -> dict[int, str]:
    """The ids of entries by position, as their senders know them; those that are gone meanwhile are left out."""
    found: dict[int, str] = {}
    starts = bases(directory)
    for position in positions:
        base = max((each for each in starts if each <= position), default=None)
        if base is not None and (entry := _entry(directory / f"{base:020d}.buf", base, position)) is not None:
            found[position] = shown_id(entry)
    return found


def _entry(path: Path, base: int, position: int) -> BufferEntry | None:
    for size in READ_BYTES:
        try:
            with path.open("rb") as file:
                file.seek(position - base)
                data = file.read(size)
        except OSError:
            return None
        if entries := entries_at(data, position, [position], size)[0]:
            return entries[0]
    return None


def shown_id(entry: BufferEntry) -> str:
    """The id of a journalled message as its sender knows it."""
    if entry.assigned_id is not None:
        return show_id(entry.assigned_id)
    own = find_names(entry.message)[0]
    return "" if own is None else own.decode("utf-8", "replace")


def refused(directory: Path) -> dict[str, int]:
    """Messages that the secondary will never take, by topic. Blocks. Raises OSError."""
    found: dict[str, int] = {}
    for each in dead.read(directory):
        found[each.entry.topic] = found.get(each.entry.topic, 0) + 1
    return dict(sorted(found.items())[:TOPICS_MAX])


def told_ranges(ranges: Sequence[MissedRange]) -> list[dict[str, Any]]:
    """The ranges to compare."""
    return [
        {"topic": each.topic, "queue": each.queue, "from_ms": each.from_ms, "to_ms": each.to_ms,
         "messages": each.messages, "reason": each.reason}
        for each in ranges
    ]  # fmt: skip
