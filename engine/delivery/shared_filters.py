"""Shared results of the filters of many groups on one queue.

The first group that reaches an offset asks the index for all groups.

A queue has a window of offsets with known results: per group, the offsets that its filter selects. A group that comes
later skips the other offsets without reading them. Windows only save work: records that are read always pass the
group's own filter, and outside of a window, or with few groups, nothing else happens.
"""

from bisect import bisect_left
from collections import OrderedDict
from typing import Any

from engine.delivery.queue_cursor import QueueCursor
from engine.filter.index import FilterIndex
from engine.filter.select import messages

WINDOWS_MAX = 1_024
OFFSETS_MAX = 8_192
"""Per window. A group that lags further behind the first one filters by itself."""
MATCHES_MAX = 65_536
"""Per window, all groups together: half a MiB."""


class MatchWindow:
    """Results for the offsets first..end.

    Attributes:
        found: by group, the offsets that its filter selects, in order.
        since: by group, the offset from which on its results are known, if its filter came later.
    """

    __slots__ = ("end", "first", "found", "matches", "since")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.since: dict[str, int] = {}
        self.found: dict[str, list[int]] = {}
        self.matches = 0

    def add(self, groups: list[str]) -> None:
        """Note the groups whose filters select the next offset."""
        for group in groups:
            self.found.setdefault(group, []).append(self.end)
        self.matches += len(groups)
        self.end += 1

    def trim(self) -> None:
        """Drop the older half until the bounds hold."""
        while self.end - self.first > OFFSETS_MAX or self.matches > MATCHES_MAX:
            self.first = (self.first + self.end + 1) // 2
            kept = {group: offsets[bisect_left(offsets, self.first) :] for group, offsets in self.found.items()}
            self.found = {group: offsets for group, offsets in kept.items() if offsets}
            self.matches = sum(map(len, self.found.values()))

    def forget(self, group: str) -> None:
        """Drop the group's results: its filter has changed."""
        self.matches -= len(self.found.pop(group, ()))
        self.since[group] = self.end

    def knows(self, group: str, offset: int) -> bool:
        """Whether the result for this group at the offset is known."""
        return max(self.first, self.since.get(group, 0)) <= offset < self.end

    def narrow(self, group: str, first: int, end: int) -> tuple[int, int]:
        """Return the first known range of first..end that is for the group; empty at the end of the known part."""
        offsets = self.found.get(group, [])
        end = min(end, self.end)
        at = bisect_left(offsets, first)
        if at == len(offsets) or offsets[at] >= end:
            return end, end
        begin = stop = offsets[at]
        while stop < end and at < len(offsets) and offsets[at] == stop:
            stop, at = stop + 1, at + 1
        return begin, stop


class TopicFilters:
    """Filters of a topic's groups, and windows by queue. Most topics have few filters and no index."""

    __slots__ = ("_index", "filters", "windows")

    def __init__(self) -> None:
        self.filters: dict[str, Any] = {}
        self.windows: dict[int, MatchWindow] = {}
        self._index: FilterIndex | None = None

    @property
    def index(self) -> FilterIndex:
        """Index of all filters, made at its first use."""
        if self._index is None:
            self._index = FilterIndex()
            for group, filter_ in self.filters.items():
                self._index.add(group, filter_.formula)
        return self._index

    def set(self, group: str, filter_: Any) -> None:
        """Set the group's filter on this topic; None removes it."""
        if filter_ is None:
            self.filters.pop(group, None)
        else:
            self.filters[group] = filter_
        if self._index is not None and filter_ is None:
            self._index.remove(group)
        elif self._index is not None:
            self._index.add(group, filter_.formula)
        for window in self.windows.values():
            window.forget(group)


class SharedFilters:
    """All windows of one engine.

    Args:
        groups_min: groups with a filter on one topic from which on the index is used.
    """

    def __init__(self, groups_min: int) -> None:
        self._groups_min = groups_min
        self._topics: dict[int, TopicFilters] = {}
        self._oldest_first: OrderedDict[tuple[int, int], None] = OrderedDict()

    def narrow(self, cursor: QueueCursor, first: int, end: int) -> tuple[int, int]:
        """Return the part of first..end to read, begin..stop; the messages before `begin` are not for the group."""
        topic = self._topics.get(cursor.topic_id)
        if topic is None:
            topic = self._topics[cursor.topic_id] = TopicFilters()
        group = cursor.group.name
        if topic.filters.get(group) is not cursor.filter:
            topic.set(group, cursor.filter)
        window = topic.windows.get(cursor.queue)
        if window is None or not window.knows(group, first):
            return first, end
        return window.narrow(group, first, end)

    def learn(self, cursor: QueueCursor, first: int, records: bytes, start: int) -> bool:
        """Take in a piece that was read, its records from byte `start` on; returns whether the index was used."""
        topic = self._topics[cursor.topic_id]
        if len(topic.filters) < self._groups_min:
            return False
        window = topic.windows.get(cursor.queue)
        if window is None or first > window.end:
            window = topic.windows[cursor.queue] = MatchWindow(first)
            self._bound(cursor.topic_id, cursor.queue)
        if first != window.end:
            return False
        index = topic.index
        for message in messages(records, start):
            window.add(index.matches(message))  # type: ignore[arg-type]
        window.trim()
        return True

    def forget(self, group: str) -> None:
        """Forget a group whose filters have changed."""
        for topic in self._topics.values():
            if group in topic.filters:
                topic.set(group, None)

    def _bound(self, topic_id: int, queue: int) -> None:
        """Bound the number of windows: the oldest one is dropped."""
        self._oldest_first[topic_id, queue] = None
        self._oldest_first.move_to_end((topic_id, queue))
        if len(self._oldest_first) > WINDOWS_MAX:
            (topic_id, queue), _ = self._oldest_first.popitem(last=False)
            del self._topics[topic_id].windows[queue]
