"""Two-valued formula of a condition: TRUE, or not TRUE. Delivery needs no more.

This module resolves three-valued logic. "a AND b is TRUE" becomes "a is TRUE and b is TRUE"; "a AND b is FALSE" becomes
"a is FALSE or b is FALSE". Applied recursively, only tests of single predicates remain, each with the set of outcomes
that satisfies it.

A formula is True, False, a Test, an All or an Any. `all_of` and `any_of` keep it short: it contains no True or False,
and no All directly in an All.
"""

from dataclasses import dataclass

from common.filter.nodes import And, Condition, Constant, IsNull, IsUnknown, Not, Or, Predicate, Same

FALSE, TRUE, UNKNOWN = 1, 2, 4
"""Outcomes of a predicate as bits."""
EVERY = 7
TESTS_MAX = 20_000


class TooComplex(Exception):
    """The formula would have more than TESTS_MAX tests."""


@dataclass(frozen=True, slots=True)
class Test:
    """True when the predicate's outcome is in `mask`, which is neither empty nor EVERY."""

    predicate: Predicate
    mask: int


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple["Formula", ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple["Formula", ...]


Formula = bool | Test | All | Any


def formula_of(condition: Condition, mask: int = TRUE) -> Formula:
    """The formula that is true when the condition's outcome is in `mask`. Raises TooComplex."""
    return _Asking().holds(condition, mask)


def test(predicate: Predicate, mask: int) -> Formula:
    """Make a Test, or a bool when the mask decides alone. Outcomes that the predicate never has are ignored."""
    if isinstance(predicate, IsNull):
        mask = mask & ~UNKNOWN
        return mask == FALSE | TRUE if mask in (0, FALSE | TRUE) else Test(predicate, mask)
    return mask == EVERY if mask in (0, EVERY) else Test(predicate, mask)


def all_of(parts: list[Formula]) -> Formula:
    kept = _kept(parts, All)
    if False in kept:
        return False
    return kept[0] if len(kept) == 1 else All(tuple(kept)) if kept else True


def any_of(parts: list[Formula]) -> Formula:
    kept = _kept(parts, Any)
    if True in kept:
        return True
    return kept[0] if len(kept) == 1 else Any(tuple(kept)) if kept else False


def _kept(parts: list[Formula], node: type[All] | type[Any]) -> list[Formula]:
    flat: list[Formula] = []
    neutral = node is All
    for part in parts:
        if isinstance(part, node):
            flat.extend(part.parts)
        elif part is not neutral:
            flat.append(part)
    return list(dict.fromkeys(flat))


class _Asking:
    """Builds a formula and counts its tests.

    The count is bounded, because a comparison of conditions tests each side twice, and comparisons can be nested.
    """

    def __init__(self) -> None:
        self._tests = 0

    def holds(self, condition: Condition, mask: int) -> Formula:
        """The formula that is true when the condition's outcome is in `mask`."""
        if isinstance(condition, Constant):
            outcome = UNKNOWN if condition.value is None else TRUE if condition.value else FALSE
            return bool(mask & outcome)
        if mask in (0, EVERY):
            return mask == EVERY
        if isinstance(condition, Not):
            return self.holds(condition.inner, mask & UNKNOWN | (mask & FALSE) << 1 | (mask & TRUE) >> 1)
        if isinstance(condition, And):
            return self._chain(condition.parts, mask, TRUE, FALSE)
        if isinstance(condition, Or):
            return self._chain(condition.parts, mask, FALSE, TRUE)
        if isinstance(condition, IsUnknown):
            return self._is_unknown(condition.inner, mask & (TRUE | FALSE))
        if isinstance(condition, Same):
            return self._same(condition, mask)
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise TooComplex
        return test(condition, mask)

    def _chain(self, parts: tuple[Condition, ...], mask: int, all_mask: int, any_mask: int) -> Formula:
        """The formula of an AND or OR.

        AND is TRUE when all parts are TRUE, FALSE when any part is FALSE, else UNKNOWN. OR swaps TRUE and FALSE.
        """
        if mask == all_mask:
            return all_of([self.holds(part, all_mask) for part in parts])
        if mask == any_mask:
            return any_of([self.holds(part, any_mask) for part in parts])
        if mask == EVERY & ~all_mask:
            return any_of([self.holds(part, mask) for part in parts])
        if mask == EVERY & ~any_mask:
            return all_of([self.holds(part, mask) for part in parts])
        decided = [self._chain(parts, one, all_mask, any_mask) for one in (all_mask, any_mask)]
        if mask == all_mask | any_mask:
            return any_of(decided)
        undecided = [self._chain(parts, EVERY & ~one, all_mask, any_mask) for one in (all_mask, any_mask)]
        return all_of(undecided)

    def _is_unknown(self, inner: Condition, mask: int) -> Formula:
        if mask == TRUE:
            return self.holds(inner, UNKNOWN)
        return self.holds(inner, TRUE | FALSE) if mask == FALSE else mask != 0

    def _same(self, condition: Same, mask: int) -> Formula:
        left, right = condition.left, condition.right
        found: list[Formula] = []
        if mask & TRUE:
            found += [all_of([self.holds(left, each), self.holds(right, each)]) for each in (TRUE, FALSE)]
        if mask & FALSE:
            found += [all_of([self.holds(left, each), self.holds(right, each ^ 3)]) for each in (TRUE, FALSE)]
        if mask & UNKNOWN:
            found += [self.holds(left, UNKNOWN), self.holds(right, UNKNOWN)]
        return any_of(found)
