"""Last readable values of entries that this version cannot read, such as those that a newer command has written."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from common.config import buckets as layout
from common.config.errors import InvalidDefinition
from common.config.snapshot import Buckets
from common.quoting import thing

log = logging.getLogger("penstock.config")

Parse = Callable[[str, Any], Any]
Values = Mapping[str, Mapping[str, Any]]


class BucketChange(NamedTuple):
    """A bucket before and after a change, as lines by name."""

    text: bytes
    before: dict[str, bytes]
    after: dict[str, bytes]


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
        values: from a snapshot.
        parse: the definition of a kind; a kind that is missing here has values of any form.
    """

    def __init__(self, values: Mapping[str, Values], parse: Mapping[str, Parse]) -> None:
        self._parse = parse
        self.values: dict[str, dict[str, Any]] = {kind: dict(named) for kind, named in values.items()}

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
        self.values[kind] = kept

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
