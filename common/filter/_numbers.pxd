# cython: language_level=3
"""Numbers in texts, inlined into _match.pyx. Reference: numbers.py, which documents the rule."""
from libc.math cimport trunc
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* overflow) except? -1.0

cdef extern from *:
    """
    static const double filter_tens[23] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                           1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    """
    const double[23] filter_tens

cdef enum:
    # Relation of nodes.py
    LESS = 1
    EQUAL = 2
    GREATER = 4

cdef enum:
    NUMBER_BYTES_MAX = 64


cdef struct Number:
    bint whole                   # the value is `integer`, else `real`
    int64_t integer
    double real


cdef inline int side_of_numbers(const Number* left, const Number* right) noexcept nogil:
    """Compare two numbers exactly: a whole number is never converted to a double."""
    if left.whole and right.whole:
        return LESS if left.integer < right.integer else EQUAL if left.integer == right.integer else GREATER
    if not left.whole and not right.whole:
        return LESS if left.real < right.real else EQUAL if left.real == right.real else GREATER
    if left.whole:
        return side_of_mixed(left.integer, right.real)
    return mirrored(side_of_mixed(right.integer, left.real))


cdef inline int mirrored(int side) noexcept nogil:
    return side & EQUAL | (side & LESS) << 2 | (side & GREATER) >> 2


cdef inline int side_of_mixed(int64_t whole, double real) noexcept nogil:
    cdef int64_t part
    if real >= 9223372036854775808.0:
        return LESS
    if real < -9223372036854775808.0:
        return GREATER
    part = <int64_t>real
    if whole != part:
        return LESS if whole < part else GREATER
    real -= trunc(real)
    return LESS if real > 0 else EQUAL if real == 0 else GREATER


cdef inline void negate(Number* number) noexcept nogil:
    if not number.whole:
        number.real = -number.real
    elif number.integer == INT64_MIN:
        number.whole = False
        number.real = 9223372036854775808.0
    else:
        number.integer = -number.integer


cdef inline bint parse_number(const uint8_t* text, uint32_t size, Number* number) except -1:
    """Parse a number by the rule of numbers.py. Whole numbers and short decimals are exact; Python converts all others.

    Bounds: every read of text[at] follows a check of `at` against `size`; `copy` has room for the largest `size`.
    """
    cdef uint32_t at = 0
    cdef bint negative = False, whole = True, power_negative = False
    cdef uint64_t digits = 0
    cdef int seen = 0            # all digits
    cdef int significant = 0     # digits without leading zeros; `digits` holds the first 19
    cdef int scale = 0
    cdef int power = 0
    cdef char[NUMBER_BYTES_MAX + 1] copy
    if size == 0 or size > NUMBER_BYTES_MAX:
        return False
    if text[0] == c'-' or text[0] == c'+':
        negative = text[0] == c'-'
        at = 1
    while at < size and c'0' <= text[at] <= c'9':
        add_digit(text[at], &digits, &significant)
        seen += 1
        at += 1
    if at < size and text[at] == c'.':
        whole = False
        at += 1
        while at < size and c'0' <= text[at] <= c'9':
            add_digit(text[at], &digits, &significant)
            seen += 1
            scale -= 1
            at += 1
    if seen == 0:
        return False
    if at < size and (text[at] == c'e' or text[at] == c'E'):
        whole = False
        at += 1
        if at < size and (text[at] == c'-' or text[at] == c'+'):
            power_negative = text[at] == c'-'
            at += 1
        if at == size:
            return False
        while at < size and c'0' <= text[at] <= c'9':
            power = min(power * 10 + (text[at] - c'0'), 100000)
            at += 1
        scale += -power if power_negative else power
    if at != size:
        return False
    if whole and significant <= 19 and digits <= <uint64_t>INT64_MAX + negative:
        number.whole = True
        number.integer = <int64_t>(0 - digits if negative else digits)
        return True
    number.whole = False
    if significant <= 15 and -22 <= scale <= 22:
        number.real = <double>digits * filter_tens[scale] if scale >= 0 else <double>digits / filter_tens[-scale]
        if negative:
            number.real = -number.real
        return True
    memcpy(copy, text, size)
    copy[size] = 0
    number.real = PyOS_string_to_double(copy, NULL, NULL)
    return True


cdef inline void add_digit(uint8_t digit, uint64_t* digits, int* significant) noexcept nogil:
    """Append a digit. Leading zeros do not count, and digits after the 19th are dropped: 19 digits fit into 64 bits."""
    if significant[0] or digit != c'0':
        significant[0] += 1
        if significant[0] <= 19:
            digits[0] = digits[0] * 10 + (digit - c'0')
