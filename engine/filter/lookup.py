"""Look-up of a message in a filter index. The reference of _lookup.pyx.

An entry is the rest of one subscription's formula; without code it holds for every message that reaches it.
"""

from collections.abc import Hashable

from common.filter.match import Code, FieldTable, Values
from common.filter.numbers import parse_number
from common.wire.faults import WireError


class IndexEntry:
    """Rest of one formula. `constants`: of an entry for other values, the values that it is not for."""

    __slots__ = ("code", "constants", "subscription")

    def __init__(self, subscription: Hashable, code: Code | None, constants: frozenset) -> None:
        self.subscription, self.code, self.constants = subscription, code, constants


class Bucket:
    """Entries of one value.

    `mentions`: number of formulas that name the value; those that it makes FALSE have no entry.
    """

    __slots__ = ("entries", "mentions")

    def __init__(self) -> None:
        self.entries: list[IndexEntry] = []
        self.mentions = 0


class KeyTable:
    """Entries of one key by value; `other`: for values that no formula names, `none`: for messages without a value."""

    def __init__(self, slot: int, numeric: bool) -> None:
        self.slot, self.numeric = slot, numeric
        self.buckets: dict[object, Bucket] = {}
        self.other: list[IndexEntry] = []
        self.none: list[IndexEntry] = []

    def put(self, value: object, entry: IndexEntry | None) -> None:
        """Add a formula that names the value; `entry`: the rest of it, if any."""
        bucket = self.buckets.setdefault(value, Bucket())
        bucket.mentions += 1
        if entry is not None:
            bucket.entries.append(entry)

    def remove(self, value: object, subscription: Hashable) -> None:
        """Remove the subscription's formula from the value."""
        bucket = self.buckets[value]
        bucket.mentions -= 1
        drop(bucket.entries, subscription)
        if not bucket.mentions:
            del self.buckets[value]

    def is_empty(self) -> bool:
        """Whether the table has no formula. Every formula names at least one value."""
        return not self.buckets


class Lookup:
    """All tables of an index. `rest`: entries of formulas without a key."""

    def __init__(self, fields: FieldTable) -> None:
        self.fields = fields
        self.tables: list[KeyTable] = []
        self.rest: list[IndexEntry] = []

    def matches(self, message: bytes) -> list[Hashable] | None:
        """Return the subscriptions whose formulas hold; None when the message is malformed."""
        try:
            values = self.fields.read(message)
        except WireError:
            return None
        found: list[Hashable] = []
        run(self.rest, values, found)
        for table in self.tables:
            value: object = values[table.slot]
            if value is not None and table.numeric:
                value = parse_number(value)  # type: ignore[arg-type]
            if value is None:
                run(table.none, values, found)
                continue
            bucket = table.buckets.get(value)
            if bucket is None:
                run(table.other, values, found)
                continue
            run(bucket.entries, values, found)
            run([entry for entry in table.other if value not in entry.constants], values, found)
        return found


def run(entries: list[IndexEntry], values: Values, found: list[Hashable]) -> None:
    for entry in entries:
        if entry.code is None or entry.code.run(values):
            found.append(entry.subscription)


def drop(entries: list[IndexEntry], subscription: Hashable) -> None:
    """Remove the subscription's entry, if there is one."""
    for at, entry in enumerate(entries):
        if entry.subscription == subscription:
            del entries[at]
            return
