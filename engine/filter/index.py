"""Index of all filters of a topic: the subscriptions that a message matches, at the cost of the few that it may match.

Every formula is filed under one key, a field that it compares for equality. A message's value of that field then hashes
to the rest of those formulas that name the value (the equal branch). The rest of the others (the unequal branch) is
evaluated, too, unless it is FALSE, as it is where the comparison is necessary. A formula without an equality is
evaluated for every message.

The chosen key leads to the fewest formulas per value. That changes as subscriptions come and go, so after as many
changes as there were subscriptions everything is filed anew: a change costs its own formula twice, on average.
"""

from collections.abc import Hashable
from typing import Any

from common.filter.formula import Formula
from common.filter.program import compile_formula
from engine.filter import partial
from engine.filter.native import FORM, FilterForm
from engine.filter.partial import IndexKey, Value

CONSTANTS_MAX = 64
"""Maximum number of constants of a field under which a formula is filed: each constant makes one more formula."""
CANDIDATES = 3
"""Keys of a formula whose cost is computed."""
REFILE_CHANGES_MIN = 32


class Mentions:
    """Number of formulas per value of one key."""

    def __init__(self) -> None:
        self.by_value: dict[Value, int] = {}
        self.total = 0

    def add(self, values: set[Value]) -> None:
        for value in values:
            self.by_value[value] = self.by_value.get(value, 0) + 1
        self.total += len(values)

    def remove(self, values: set[Value]) -> None:
        for value in values:
            self.by_value[value] -= 1
            if not self.by_value[value]:
                del self.by_value[value]
        self.total -= len(values)


class FilterIndex:
    """Formulas by subscription. `matches` may be called between any two changes.

    Args:
        keyed: False evaluates every formula for every message, as the baseline of measurements.
    """

    def __init__(self, form: FilterForm = FORM, *, keyed: bool = True) -> None:
        self._form, self._keyed = form, keyed
        self._formulas: dict[Hashable, Formula] = {}
        self._mentions: dict[IndexKey, Mentions] = {}
        self._changes_left = REFILE_CHANGES_MIN
        self._begin()

    def __len__(self) -> int:
        return len(self._formulas)

    def add(self, subscription: Hashable, formula: Formula) -> None:
        """Add a subscription, or change its formula."""
        self.remove(subscription)
        self._formulas[subscription] = formula
        for key, constants in partial.keys_of(formula).items():
            self._mentions.setdefault(key, Mentions()).add(constants)
        self._file(subscription, formula)
        self._changed()

    def remove(self, subscription: Hashable) -> None:
        """Remove a subscription, if it is there."""
        formula = self._formulas.pop(subscription, None)
        if formula is None:
            return
        for key, constants in partial.keys_of(formula).items():
            mentioned = self._mentions[key]
            mentioned.remove(constants)
            if not mentioned.total:
                del self._mentions[key]
        self._unfile(subscription)
        self._changed()

    def matches(self, message: bytes) -> list[Hashable]:
        """Return the subscriptions that the message matches, in no order; all of them for a malformed message."""
        found = self._lookup.matches(message)
        return list(self._formulas) if found is None else found

    def key_of(self, subscription: Hashable) -> IndexKey | None:
        """Return the key of a subscription."""
        return self._filed[subscription][0]

    # -- filing

    def _begin(self) -> None:
        self._fields = self._form.FieldTable()
        self._lookup = self._form.Lookup(self._fields)
        self._tables: dict[IndexKey, Any] = {}
        self._filed: dict[Hashable, tuple[IndexKey | None, set[Value]]] = {}

    def _changed(self) -> None:
        self._changes_left -= 1
        if self._changes_left > 0:
            return
        self._changes_left = max(REFILE_CHANGES_MIN, len(self._formulas))
        self._begin()
        for subscription, formula in self._formulas.items():
            self._file(subscription, formula)

    def _file(self, subscription: Hashable, formula: Formula) -> None:
        key, constants = self._choose(formula) if self._keyed else (None, set())
        self._filed[subscription] = key, constants
        if key is None:
            if formula is not False:
                self._lookup.rest.append(self._entry(subscription, formula))
            return
        table = self._table(key)
        for value in constants:
            # An empty bucket is kept, too: it excludes the value from `other`.
            left = partial.when_equal(formula, key, value)
            table.put(value, None if left is False else self._entry(subscription, left))
        left = partial.when_other(formula, key)
        if left is not False:
            table.other.append(self._entry(subscription, left, constants))
        left = partial.when_none(formula, key)
        if left is not False:
            table.none.append(self._entry(subscription, left))

    def _unfile(self, subscription: Hashable) -> None:
        key, constants = self._filed.pop(subscription)
        if key is None:
            self._form.drop(self._lookup.rest, subscription)
            return
        table = self._tables[key]
        for value in constants:
            table.remove(value, subscription)
        self._form.drop(table.other, subscription)
        self._form.drop(table.none, subscription)
        if table.is_empty():
            del self._tables[key]
            self._lookup.tables.remove(table)

    def _choose(self, formula: Formula) -> tuple[IndexKey | None, set[Value]]:
        """Return the key with the fewest formulas to run per message, by the constants that are known."""
        keys = {
            key: constants for key, constants in partial.keys_of(formula).items() if len(constants) <= CONSTANTS_MAX
        }
        likeliest = sorted(keys, key=self._bucket_size)[:CANDIDATES]
        costs = [(self._bucket_size(key) + self._cost_of_others(formula, key), at) for at, key in enumerate(likeliest)]
        if not costs:
            return None, set()
        chosen = likeliest[min(costs)[1]]
        return chosen, keys[chosen]

    def _bucket_size(self, key: IndexKey) -> float:
        """Return the average number of formulas per value of the key."""
        mentioned = self._mentions[key]
        return mentioned.total / len(mentioned.by_value)

    def _cost_of_others(self, formula: Formula, key: IndexKey) -> int:
        """A formula that other values can satisfy runs for all messages: as expensive as a bucket of all."""
        return 0 if partial.when_other(formula, key) is False else len(self._formulas)

    def _entry(self, subscription: Hashable, formula: Formula, constants: set[Value] | None = None):
        code = None if formula is True else self._form.Code(compile_formula(formula, self._fields.slot))
        return self._form.IndexEntry(subscription, code, frozenset(constants or ()))

    def _table(self, key: IndexKey):
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._form.KeyTable(self._fields.slot(key.field), key.numeric)
            self._lookup.tables.append(table)
        return table
