"""What a message leads to in an index. The reference of _lookup.pyx.

An entry is what is left of one subscription's formula; without code it holds for every message that comes to it.
"""

from collections.abc import Hashable

from common.filter.match import Code, FieldTable, Values
from common.filter.numbers import parse_number
from common.wire.faults import WireError


class Entry:
    """`constants`: of an entry for other values, those that it is not for."""

    __slots__ = ("code", "constants", "subscription")

    def __init__(self, subscription: Hashable, code: Code | None, constants: frozenset) -> None:
        self.subscription, self.code, self.constants = subscription, code, constants


class Bucket:
    """`mentions`: how many formulas name the value; those that it makes FALSE have no entry."""

    __slots__ = ("entries", "mentions")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.mentions = 0


class KeyTable:
    """What is filed under one key, by values; `other` for values without equality, `none` for messages without value."""

    def __init__(self, slot: int, numeric: bool) -> None:
        self.slot, self.numeric = slot, numeric
        self.buckets: dict[object, Bucket] = {}
        self.other: list[Entry] = []
        self.none: list[Entry] = []

    def put(self, value: object, entry: Entry | None) -> None:
        """A formula names the value; `entry`: what is left of it, if anything."""
        bucket = self.buckets.setdefault(value, Bucket())
        bucket.mentions += 1
        if entry is not None:
            bucket.entries.append(entry)

    def take(self, value: object, subscription: Hashable) -> None:
        """The formula of that subscription names the value no longer."""
        bucket = self.buckets[value]
        bucket.mentions -= 1
        drop(bucket.entries, subscription)
        if not bucket.mentions:
            del self.buckets[value]

    def is_empty(self) -> bool:
        """Whether nothing is filed here. A formula names at least one value."""
        return not self.buckets


class Lookup:
    """`rest`: formulas without a key."""

    def __init__(self, fields: FieldTable) -> None:
        self.fields = fields
        self.tables: list[KeyTable] = []
        self.rest: list[Entry] = []

    def matches(self, message: bytes) -> list[Hashable] | None:
        """The subscriptions whose formulas hold; None when the message cannot be walked."""
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


def run(entries: list[Entry], values: Values, found: list[Hashable]) -> None:
    for entry in entries:
        if entry.code is None or entry.code.run(values):
            found.append(entry.subscription)


def drop(entries: list[Entry], subscription: Hashable) -> None:
    """Take out the subscription's entry, if there is one."""
    for at, entry in enumerate(entries):
        if entry.subscription == subscription:
            del entries[at]
            return
