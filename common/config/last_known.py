"""Last readable values of entries that this version cannot read, such as those that a newer command has written."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from common.clock import Clock
from common.config import buckets as layout
from common.config.errors import InvalidDefinition
from common.config.snapshot import Buckets
from common.limited_log import LimitedLog
from common.quoting import thing

log = logging.getLogger("penstock.config")
limited = LimitedLog(log)

Parse = Callable[[str, Any], Any]
Values = Mapping[str, Mapping[str, Any]]


class BucketChange(NamedTuple):
    """A bucket before and after a change, as lines by name."""

    text: bytes
    before: dict[str, bytes]
    after: dict[str, bytes]


class UnreadableEntry(NamedTuple):
    """An entry that cannot be read, whose last known form is in force."""

    kind: str
    name: str
    since_ms: int


def changes(kind: str, old: Buckets, new: Buckets) -> Iterator[BucketChange]:
    """The buckets that had entries and have changed. Raises StoreDamaged."""
    if len(old.payloads) != len(new.payloads):
        return
    for number, (before, after) in enumerate(zip(old.payloads, new.payloads, strict=True)):
        if before and before is not after and before != after:
            subject = f"{kind} bucket {number}"
            text = layout.unpack(after, subject)
            yield BucketChange(text, layout.lines_of(layout.unpack(before, subject)), layout.lines_of(text))


class LastKnown:
    """The values, by kind and name. Only unreadable entries have one, so it is empty as a rule.

    Args:
        values, since_ms: from a snapshot.
        parse: the definition of a kind; a kind that is missing here has values of any form.

    Attributes:
        since_ms: by kind and name: when the process first saw that the entry cannot be read.
    """

    def __init__(
        self, values: Mapping[str, Values], parse: Mapping[str, Parse], clock: Clock,
        since_ms: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:  # fmt: skip
        self._parse, self._clock = parse, clock
        self.values: dict[str, dict[str, Any]] = {kind: dict(named) for kind, named in values.items()}
        saved, now_ms = since_ms or {}, clock.now_ms()
        self.since_ms: dict[str, dict[str, int]] = {
            kind: {name: saved.get(kind, {}).get(name, now_ms) for name in named} for kind, named in values.items()
        }

    def get(self, kind: str, name: str) -> Any:
        """The last readable value; None: every value was readable, or none was."""
        return self.values.get(kind, {}).get(name)

    def note(self, kind: str, changed: list[BucketChange]) -> None:
        """Keep the value of each entry that has become unreadable, until it is readable again or gone."""
        parse = self._parse.get(kind)
        if parse is None:
            return
        kept = dict(self.values.get(kind, {}))
        for bucket in changed:
            for name, before in bucket.before.items():
                after = bucket.after.get(name)
                if after is None:
                    kept.pop(name, None)
                elif after != before:
                    self._note_entry(kind, name, before, after, kept)
        seen = self.since_ms.get(kind, {})
        self.since_ms[kind] = {name: seen.get(name, self._clock.now_ms()) for name in kept}
        self.values[kind] = kept

    def retain(self, kind: str, is_unreadable: Callable[[str], bool]) -> None:
        """Keep only values of entries that cannot be read now, after a state that was not compared with the last one."""
        self.values[kind] = {name: each for name, each in self.values.get(kind, {}).items() if is_unreadable(name)}

    def entries(self) -> list[UnreadableEntry]:
        """The entries whose last known form is in force, by kind and name."""
        return [
            UnreadableEntry(kind, name, self.since_ms.get(kind, {}).get(name, self._clock.now_ms()))
            for kind, named in sorted(self.values.items())
            for name in sorted(named)
        ]

    def tell(self) -> None:
        """Log these entries, each as often as the log takes it."""
        for each in self.entries():
            limited.warning(
                "%s: cannot be read for %.0f s, its last known form is in force: see `penstock config verify`",
                thing(each.kind, each.name), (self._clock.now_ms() - each.since_ms) / 1000, about=each.name,
            )  # fmt: skip

    def _note_entry(self, kind: str, name: str, before: bytes, after: bytes, kept: dict[str, Any]) -> None:
        parse = self._parse[kind]
        try:
            parse(name, layout.parse_line(after).value)
            kept.pop(name, None)
        except InvalidDefinition as fault:
            value = layout.parse_line(before).value
            if name not in kept and _is_readable(parse, name, value):
                kept[name] = value
            if name in kept:
                log.warning("%s: cannot be read, its last known form stays in force: %s", thing(kind, name), fault)


def _is_readable(parse: Parse, name: str, value: Any) -> bool:
    try:
        parse(name, value)
    except InvalidDefinition:
        return False
    return True
