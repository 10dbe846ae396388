"""The proof: checks deliveries against the file. Pure; it trusts neither the producer nor the consumer."""

import hashlib
from dataclasses import dataclass, field

from penstock.demo.source import DIGEST_BYTES, DemoSource

EXAMPLES_MAX = 3


@dataclass
class Faults:
    """Counts by kind, with the first few examples of each."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.examples.setdefault(kind, [])
        if len(shown) < EXAMPLES_MAX:
            shown.append(example)

    def sentence(self) -> str:
        return "; ".join(
            f"{count:,} {kind} (e.g. {', '.join(self.examples[kind])})" for kind, count in self.counts.items()
        )


class Check:
    """Takes one delivery at a time, in the consumer's order.

    It checks that every line index arrives once, with the line's SHA-256 and the key that the producer had to use. It
    also checks that within a key, line indices and offsets of one queue rise.
    """

    def __init__(self, source: DemoSource, keys: int) -> None:
        self.source, self.keys = source, keys
        self.deliveries = 0
        self.arrived = 0
        self.redelivered = 0
        self.faults = Faults()
        self._got = bytearray(len(source.digests))
        self._seen = bytearray(source.count)
        self._last: dict[str, tuple[int, int, int]] = {}  # key → line, queue, offset of its latest message

    def take(self, text: str) -> None:
        """Take a consumer's line: line index, key, queue, offset, attempt, SHA-256; separated by tabs."""
        try:
            line, key, queue, offset, attempt, digest = text.rstrip("\n").split("\t")
            self._take(int(line), key, int(queue), int(offset), int(attempt), bytes.fromhex(digest))
        except ValueError:
            self.faults.add("unreadable reports of the consumer", repr(text[:80]))

    def _take(self, line: int, key: str, queue: int, offset: int, attempt: int, digest: bytes) -> None:
        self.deliveries += 1
        self.redelivered += attempt > 1
        if not 0 <= line < self.source.count:
            self.faults.add("lines that the file does not have", str(line))
            return
        if self._seen[line]:
            self.faults.add("lines more than once", str(line))
            return
        self._seen[line] = 1
        self.arrived += 1
        self._got[line * DIGEST_BYTES : (line + 1) * DIGEST_BYTES] = digest
        if digest != self.source.digest(line):
            self.faults.add("lines with another content", str(line))
        if key != f"k{line % self.keys}":
            self.faults.add("lines with another key", f"{line}: {key}")
        self._check_order(line, key, queue, offset)

    def _check_order(self, line: int, key: str, queue: int, offset: int) -> None:
        if last := self._last.get(key):
            if line <= last[0] or (queue == last[1] and offset <= last[2]):
                self.faults.add("lines out of order within their key", f"{line} after {last[0]}")
            if queue != last[1]:
                self.faults.add("keys in two queues", key)
        self._last[key] = (line, queue, offset)

    @property
    def complete(self) -> bool:
        return self.arrived == self.source.count

    def total(self) -> str:
        """SHA-256 over the delivered digests in line order; equal to the file's only if every one is."""
        return hashlib.sha256(self._got).hexdigest()

    def finish(self) -> bool:
        """Count missing lines; True when all is proven."""
        for line in range(self.source.count if not self.complete else 0):
            if not self._seen[line]:
                self.faults.add("lines that never arrived", str(line))
        if self.total() != self.source.total:
            self.faults.add("total that differs", f"{self.total()[:16]}… for {self.source.total[:16]}…")
        return not self.faults.counts
