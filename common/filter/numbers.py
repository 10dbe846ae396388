"""Numbers in properties, which are texts, and in filters. Whole numbers of 64 bits are exact; everything else is a double.

NUMBER is the rule for texts that count as a number: no blanks, no suffix, no hexadecimal, no NaN, at most 64 characters.
"""

import re

NUMBER = re.compile(rb"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
NUMBER_BYTES_MAX = 64
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1

Number = int | float


def parse_number(text: bytes) -> Number | None:
    """The number that a property holds, None when it holds none. A double beyond its range is infinite."""
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
    """The number's negative; that of the least whole number is a double."""
    return -number if number != INTEGER_MIN or isinstance(number, float) else -float(number)
