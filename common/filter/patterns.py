"""Patterns of LIKE. In their compiled form two bytes that no UTF-8 text has stand for `%` and `_`."""

PATTERN_BYTES_MAX = 256
"""Matching takes at most (length of the pattern) × (length of the text) steps."""
ANY, ONE = 0xFF, 0xFE


def ends_in_escape(pattern: str, escape: str) -> bool:
    """Whether its last escape character precedes no character."""
    return bool(escape) and pattern.replace(escape * 2, "").endswith(escape)


def compile_pattern(pattern: str, escape: str) -> bytes:
    """The compiled form: the pattern's own bytes, with ANY for `%` and ONE for `_`. Several ANY in a row are one."""
    out = bytearray()
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            out += next(chars, "").encode()
        elif char == "%":
            if out[-1:] != bytes([ANY]):
                out.append(ANY)
        else:
            out += bytes([ONE]) if char == "_" else char.encode()
    return bytes(out)


def matches(text: bytes, pattern: bytes) -> bool:
    """Whether a UTF-8 text has the form of a compiled pattern. Only the last ANY is ever tried again, further on."""
    at = step = mark = 0
    resume = -1
    size = len(pattern)
    while at < len(text):
        if step < size and pattern[step] == ANY:
            step += 1
            mark, resume = at, step
        elif step < size and pattern[step] == ONE:
            at, step = after_char(text, at), step + 1
        elif step < size and pattern[step] == text[at]:
            at, step = at + 1, step + 1
        elif resume >= 0:
            mark = after_char(text, mark)
            at, step = mark, resume
        else:
            return False
    return step == size or (step == size - 1 and pattern[step] == ANY)


def after_char(text: bytes, at: int) -> int:
    """Where the character behind the one at `at` begins."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def is_like(text: str, pattern: str, escape: str) -> bool:
    """The same on texts, for literals."""
    return matches(text.encode(), compile_pattern(pattern, escape))
