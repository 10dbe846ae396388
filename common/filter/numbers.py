"""Numbers in filters and in properties, whose values are texts.

Whole numbers of 64 bits are exact; all others are doubles. NUMBER is the rule for texts that count as numbers: no
blanks, no suffix, no hexadecimal, no NaN, at most 64 characters.
"""

import re

NUMBER = re.compile(rb"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
NUMBER_BYTES_MAX = 64
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1

Number = int | float


def parse_number(text: bytes) -> Number | None:
    """The number in a property's text; None when the text is no number. A double beyond its range is infinite."""
    if len(text) > NUMBER_BYTES_MAX:
        return None
    found = NUMBER.fullmatch(text)
    if found is None:
        return None
    if not any(found.groups()):
        whole = int(text)
        if INTEGER_MIN <= whole <= INTEGER_MAX:
            return whole
    return float(text)


def negate(number: Number) -> Number:
    """The number with the opposite sign. For INTEGER_MIN that is a double, because 64 bits cannot hold it."""
    return -number if number != INTEGER_MIN or isinstance(number, float) else -float(number)
