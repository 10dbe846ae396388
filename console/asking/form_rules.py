"""Rules of fields that the forms of all requests share. Each returns the value, and adds what is wrong to `faults`."""

from collections.abc import Mapping, Sequence

DESCRIPTION_CHARS_MAX = 1_000
Bounds = tuple[int, int, str]
"""Lowest and highest value, and the unit in words."""


def described(form: Mapping[str, str], what: str, faults: dict[str, str]) -> str:
    """The field `description`, on one line."""
    text = " ".join(form.get("description", "").split())
    if not 1 <= len(text) <= DESCRIPTION_CHARS_MAX:
        faults["description"] = f"Say in 1 to {DESCRIPTION_CHARS_MAX:,} characters {what}."
    return text


def whole_number(form: Mapping[str, str], field: str, bounds: Bounds, faults: dict[str, str]) -> int:
    """A whole number; commas and blanks may group its digits."""
    low, high, unit = bounds
    plain = form.get(field, "").strip().replace(",", "").replace(" ", "")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 15 and low <= int(plain) <= high):
        faults[field] = f"Use a whole number from {low:,} to {high:,} ({unit})."
        return low
    return int(plain)


def choice(form: Mapping[str, str], field: str, choices: Sequence[str], faults: dict[str, str]) -> str:
    """One of a list."""
    found = form.get(field, "")
    if found not in choices:
        faults[field] = f"Choose one of {', '.join(choices)}."
    return found
