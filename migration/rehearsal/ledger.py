"""The ledger of a rehearsal's synthetic load: what was sent, how it was answered, and what was found of it. Thread-safe.

Ids name topic, key and number, so that what a consumer got, or what a queue holds, can be judged without a look at the
sender.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.contract import Code

NO_ANSWER = -1
"""In place of a code: the connection broke, so the message may be stored."""
OK_CODES = (Code.OK, Code.BUFFERED, Code.DUPLICATE)
UNKNOWN_CODES = (NO_ANSWER, Code.TIMEOUT)
LISTED_MAX = 20


class LoadId(NamedTuple):
    """A synthetic message: the number grows per topic and key."""

    topic: str
    key: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.key}/{self.number}"


def load_id(text: str) -> LoadId | None:
    """None: it is no id of a synthetic message."""
    parts = text.rsplit("/", 2)
    return LoadId(parts[0], parts[1], int(parts[2])) if len(parts) == 3 and parts[2].isdigit() else None


def code_name(code: int) -> str:
    return "no answer" if code == NO_ANSWER else Code._VALUES_TO_NAMES.get(code, str(code))


class CallerView(NamedTuple):
    """What callers saw within a step.

    Attributes:
        codes: numbers of answers by code's name.
        fence_s_max: the longest time from a topic's first FENCED answer to its next OK; 0: there was none.
        stall_s_max: the same for every answer that is not OK.
    """

    codes: dict[str, int]
    fence_s_max: float
    stall_s_max: float


@dataclass
class Verdict:
    """
    Attributes:
        answered: messages that were answered OK.
        lost: of these, those that were not found.
        doubled: found more often than explained.
        again: found more than once, and explained: sent again after an unknown outcome, or read again after a kill.
        unordered: later ones of a key that came first.
        examples: some ids, by what is wrong with them.
    """

    answered: int = 0
    lost: int = 0
    doubled: int = 0
    again: int = 0
    unordered: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.unordered)

    def note(self, what: str, ids: Iterable[object]) -> int:
        """Keep the first ids, and return how many there are."""
        listed = [str(each) for each in ids]
        if listed:
            self.examples[what] = listed[:LISTED_MAX]
        return len(listed)


class LoadLedger:
    """What the synthetic producers were answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: set[str] = set()
        self._unknown: set[str] = set()
        self._codes: Counter[int] = Counter()
        self._since: dict[tuple[str, bool], float] = {}
        self._longest = {True: 0.0, False: 0.0}

    def answer(self, id_: LoadId, code: int, now_s: float) -> None:
        """Note one answer."""
        with self._lock:
            self._codes[code] += 1
            if code in OK_CODES:
                self._answered.add(str(id_))
                for is_fence in (True, False):
                    if (since := self._since.pop((id_.topic, is_fence), None)) is not None:
                        self._longest[is_fence] = max(self._longest[is_fence], now_s - since)
                return
            if code in UNKNOWN_CODES:
                self._unknown.add(str(id_))
            self._since.setdefault((id_.topic, False), now_s)
            if code == Code.FENCED:
                self._since.setdefault((id_.topic, True), now_s)

    def taken_view(self, now_s: float) -> CallerView:
        """What callers saw since the last call. A stall that has not ended counts up to now, and again in the next step."""
        with self._lock:
            longest = dict(self._longest)
            for (_, is_fence), since in self._since.items():
                longest[is_fence] = max(longest[is_fence], now_s - since)
            found = CallerView(
                {code_name(code): count for code, count in sorted(self._codes.items())}, longest[True], longest[False]
            )
            self._codes.clear()
            self._longest = {True: 0.0, False: 0.0}
        return found

    @property
    def answered(self) -> frozenset[str]:
        """Ids that were answered OK."""
        with self._lock:
            return frozenset(self._answered)

    def judged(self, found: Mapping[Any, Iterable[str]], again_max: int = 0, has_order: bool = True) -> Verdict:
        """Judge what was found.

        Args:
            found: ids of synthetic messages in the order of each queue, or of each consumer.
            again_max: so many ids may be found again although their senders had no unknown outcome: as a killed process
                explains.
            has_order: whether messages of a key must come in order.
        """
        rows = {name: [*ids] for name, ids in found.items()}
        counts = Counter(each for ids in rows.values() for each in ids)
        answered, unknown = self.answered, frozenset(self._unknown)
        verdict = Verdict(len(answered))
        verdict.lost = verdict.note("lost", sorted(answered - counts.keys()))
        more = [each for each, count in counts.items() if count > 1]
        unexplained = [each for each in more if each not in unknown]
        is_explained = len(unexplained) <= again_max
        verdict.again = len(more) - (0 if is_explained else len(unexplained))
        if not is_explained:
            verdict.doubled = verdict.note("doubled", unexplained)
        if has_order:
            verdict.unordered = verdict.note("out of order", _unordered(rows.values()))
        return verdict


def _unordered(rows: Iterable[list[str]]) -> list[str]:
    """Ids that come after a later one of their key, by the first appearance of each."""
    wrong = []
    for ids in rows:
        last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
        for each in dict.fromkeys(ids):
            if (parsed := load_id(each)) is None:
                continue
            if parsed.number < last[parsed.topic, parsed.key]:
                wrong.append(each)
            last[parsed.topic, parsed.key] = max(last[parsed.topic, parsed.key], parsed.number)
    return wrong
