"""All names of a kind in order, for search and pages on the server: 100,000 topics take some 10 MB."""

import threading
from bisect import bisect_right
from typing import NamedTuple

from common.config.view import ConfigView

LARGE = 20_000
"""A larger kind is sorted again in a thread of its own after a change, which takes some 0.2 s; pages show the last order
meanwhile."""


class NamePage(NamedTuple):
    """One page of names. `total`: of the whole search. `after`: begins the next page; empty: this is the last one."""

    names: list[str]
    total: int
    after: str


class NameIndex:
    def __init__(self, view: ConfigView) -> None:
        self._view = view
        self._known: dict[str, tuple[int, list[str], list[str]]] = {}  # kind -> generation, names, lower-case names
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    def page(self, kind: str, text: str = "", after: str = "", limit: int = 50) -> NamePage:
        """The next `limit` names after a name that contain the text, whatever its case."""
        names, lower = self._names(kind)
        wanted = text.casefold()
        found = [name for name, low in zip(names, lower, strict=True) if wanted in low] if wanted else names
        begin = bisect_right(found, after) if after else 0
        shown = found[begin : begin + limit]
        return NamePage(shown, len(found), shown[-1] if begin + limit < len(found) else "")

    def count(self, kind: str) -> int:
        return len(self._names(kind)[0])

    def _names(self, kind: str) -> tuple[list[str], list[str]]:
        generation = self._view.generation
        known = self._known.get(kind)
        if known is not None and known[0] != generation and len(known[1]) >= LARGE:
            self._refresh_later(kind)
        elif known is None or known[0] != generation:
            known = self._refresh(kind)
        return known[1], known[2]

    def _refresh(self, kind: str) -> tuple[int, list[str], list[str]]:
        generation = self._view.generation
        names = self._view.names_with(kind, b"")
        lower = [name if (low := name.casefold()) == name else low for name in names]  # shared: 8 MB of 100,000 names
        found = self._known[kind] = (generation, names, lower)
        return found

    def _refresh_later(self, kind: str) -> None:
        with self._lock:
            if kind in self._busy:
                return
            self._busy.add(kind)
        threading.Thread(target=self._refresh_once, args=(kind,), name=f"names-{kind}", daemon=True).start()

    def _refresh_once(self, kind: str) -> None:
        try:
            self._refresh(kind)
        finally:
            with self._lock:
                self._busy.discard(kind)
