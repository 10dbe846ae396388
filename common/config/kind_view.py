"""One kind of definitions at one time, as packed buckets; a bounded number of parsed entries is cached."""

import re
from collections.abc import Iterator
from typing import Any

from common.config import buckets as layout
from common.config.snapshot import Buckets
from common.config.store import Versioned

# Parsed definitions per generation; two generations use some 60 MB at names of 30 characters.
PARSED_MAX = 100_000
ABSENT_WEIGHT = 10  # entries that an unknown name counts as: it is a typing error, not part of a working set


class KindView:
    """Buckets stay packed until the first look-up in them; an entry is parsed at its first look-up.

    Parsed entries are in two generations. A full recent generation becomes the older one, whose entries are dropped
    unless they are looked up again meanwhile. So a million names looked up once stay within the bound, and entries in
    use stay.
    """

    def __init__(self, buckets: Buckets):
        self.buckets = buckets
        self.texts: list[bytes | None] = [None] * len(buckets.payloads)
        self.recent: list[dict[str, Any]] = [{} for _ in buckets.payloads]
        self.older: list[dict[str, Any]] = [{} for _ in buckets.payloads]
        self._room = PARSED_MAX

    def successor(self, buckets: Buckets) -> "KindView":
        """The view after a change; unpacked texts and parsed entries of unchanged buckets are kept."""
        new = KindView(buckets)
        if len(buckets.payloads) == len(self.buckets.payloads):
            new._room = self._room
            for number, payload in enumerate(buckets.payloads):
                if payload is self.buckets.payloads[number]:
                    new.texts[number] = self.texts[number]
                    new.recent[number], new.older[number] = self.recent[number], self.older[number]
        return new

    def unparsed(self) -> "KindView":
        """The view without its parsed entries, for a change of another kind on which they depend."""
        new = KindView(self.buckets)
        new.texts = self.texts
        return new

    def text(self, number: int) -> bytes:
        text = self.texts[number]
        if text is None:
            text = self.texts[number] = layout.unpack(self.buckets.payloads[number], f"bucket {number}")
        return text

    def entry(self, name: str) -> Versioned | None:
        """The entry as stored, parsed on each call."""
        return layout.find(self.text_of(name), name)

    def was_deleted(self, name: str) -> bool:
        """Whether the entry does not exist and its deletion is on record."""
        return layout.is_deleted(self.text_of(name), name) and self.entry(name) is None

    def deletions(self) -> Iterator[str]:
        """Names whose deletion is on record."""
        for number in range(len(self.texts)):
            yield from layout.deletions_of(self.text(number))

    def text_of(self, name: str) -> bytes:
        """The text of the bucket that has the entry of this name, if there is one."""
        return self.text(layout.bucket_of(name, len(self.recent)))

    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """Every name and value, parsed on each call: for a kind with few entries."""
        lines = [item for number in range(len(self.texts)) for item in layout.lines_of(self.text(number)).items()]
        return [(name, layout.parse_line(line).value) for name, line in lines]

    def names_with(self, part: bytes) -> list[str]:
        """Names of the entries whose stored text has this part; only buckets that have it are looked into."""
        texts = [text for number in range(len(self.texts)) if part in (text := self.text(number))]
        return sorted(name for text in texts for name, line in layout.lines_of(text).items() if part in line)

    def found(self, pattern: re.Pattern[bytes]) -> set[bytes]:
        """The matches of the pattern in the stored texts, which are not parsed. Packed buckets stay packed."""
        packed = zip(self.texts, self.buckets.payloads, strict=True)
        texts = (layout.unpack(payload, "a bucket") if text is None else text for text, payload in packed)
        return {each for text in texts for each in pattern.findall(text)}

    def texts_besides(self, seen: "KindView | None") -> Iterator[bytes]:
        """The texts of the buckets that have changed since `seen`; None: all."""
        for number, payload in enumerate(self.buckets.payloads):
            if seen is None or len(seen.texts) != len(self.texts) or payload is not seen.buckets.payloads[number]:
                yield self.text(number)

    def keep(self, number: int, name: str, found: Any) -> None:
        """Cache the entry of a name of this bucket; None: it does not exist."""
        self.recent[number][name] = found
        self._room -= 1 if found is not None else ABSENT_WEIGHT
        if self._room <= 0:
            self._room = PARSED_MAX
            self.older, self.recent = self.recent, [{} for _ in self.recent]
