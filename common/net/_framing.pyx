# cython: language_level=3, boundscheck=False, wraparound=False
"""Size of an unframed message. Reference: MessageScan in framing.py.

A scan continues from its last position when more bytes come. If it restarted each time, a call in many small pieces
would cost the square of its size.

Bounds: every read of p[at] follows a check of `at` against `n`. Counts and sizes of the message are checked against `n`
before `at` moves. `depth` is at most DEPTH_MAX + 1, the number of levels.
"""

from libc.stdint cimport uint32_t

cdef enum:
    DEPTH_MAX = 16


cdef inline int least_size(int kind) noexcept nogil:
    if kind == 2 or kind == 3 or kind == 12:
        return 1
    if kind == 6:
        return 2
    if kind == 8 or kind == 11:
        return 4
    if kind == 4 or kind == 10:
        return 8
    if kind == 13:
        return 6
    if kind == 14 or kind == 15:
        return 5
    return 0


cdef inline bint is_fixed(int kind) noexcept nogil:
    return kind < 11 and least_size(kind) != 0


cdef Py_ssize_t scan_message(const unsigned char* p, size_t n, MessageScan* scan, size_t* need) noexcept nogil:
    """Return the size of the message at p, 0 when bytes are missing, -1 when it is invalid.

    When bytes are missing, *need is a lower bound of the size.
    """
    cdef Level* level
    cdef size_t at
    cdef int name_size, kind, outcome
    if scan.depth == 0:
        if n < 8:
            need[0] = 8
            return 0
        if p[0] != 0x80 or p[1] != 0x01:
            return -1
        name_size = <int>be32(p + 4)
        if name_size < 0 or name_size > 64:
            return -1
        scan.at = 12 + name_size
        push_level(scan, 12, 0, 0, 0)
    while scan.depth > 0:
        level = &scan.levels[scan.depth - 1]
        at = scan.at
        if level.kind == 12:
            if at >= n:
                need[0] = at + 1
                return 0
            kind = p[at]
            if kind == 0:
                scan.at += 1
                scan.depth -= 1
                continue
            if at + 3 > n:
                need[0] = at + 3
                return 0
            at += 3
        elif level.left == 0:
            scan.depth -= 1
            continue
        else:
            kind = level.second if level.kind == 13 and level.left & 1 else level.first
        outcome = scan_value(p, n, at, kind, scan, level, need)
        if outcome <= 0:
            return outcome
    return scan.at


cdef inline void push_level(MessageScan* scan, int kind, int first, int second, uint32_t left) noexcept nogil:
    cdef Level* level = &scan.levels[scan.depth]
    level.kind, level.first, level.second, level.left = kind, first, second, left
    scan.depth += 1


cdef int scan_value(const unsigned char* p, size_t n, size_t at, int kind, MessageScan* scan, Level* level, size_t* need) noexcept nogil:
    """Step over one value, or into it; 1 when that was possible, else the scan has not moved."""
    cdef int size = least_size(kind), head, count, first, second = 0
    cdef size_t least
    if scan.depth > DEPTH_MAX or size == 0:
        return -1
    if kind != 12 and at + size > n:
        need[0] = at + size
        return 0
    if kind == 11:
        size = <int>be32(p + at)
        if size < 0:
            return -1
        at += 4
        if at + size > n:
            need[0] = at + size
            return 0
    elif kind == 12:
        size = 0
    elif kind >= 13:
        first, second = p[at], p[at + 1] if kind == 13 else 0
        count = <int>be32(p + at + size - 4)
        if count < 0:
            return -1
        if count > 0:
            if least_size(first) == 0 or (kind == 13 and least_size(second) == 0):
                return -1
            least = least_size(first) + (least_size(second) if kind == 13 else 0)
            if at + size + count * least > n:
                need[0] = at + size + count * least
                return 0
            if scan.depth == DEPTH_MAX:
                return -1
            if is_fixed(first) and (kind != 13 or is_fixed(second)):
                at += count * least
                count = 0
    level.left -= level.kind != 12
    scan.at = at + size
    if kind == 12:
        push_level(scan, 12, 0, 0, 0)
    elif kind >= 13 and count > 0:
        push_level(scan, kind, first, second, <uint32_t>count * 2 if kind == 13 else count)
    return 1


def message_size(bytes data):
    """Native message_size(), for tests that compare both forms. Returns (size, need); size -1 is invalid."""
    return message_size_in_pieces([data])


def message_size_in_pieces(list pieces):
    """As message_size(), for a message that comes in pieces and is scanned after each."""
    cdef MessageScan scan
    cdef size_t need = 0
    cdef Py_ssize_t size = 0
    cdef bytes data = b""
    scan.depth = 0
    for piece in pieces:
        data += piece
        size = scan_message(data, len(data), &scan, &need)
        if size:
            break
    return size, need
