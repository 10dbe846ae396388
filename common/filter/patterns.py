"""Patterns of LIKE. In the compiled form, two bytes that never occur in UTF-8 stand for `%` and `_`."""

PATTERN_BYTES_MAX = 256
"""Maximum size of a pattern. Matching takes at most (size of the pattern) × (size of the text) steps."""
ANY, ONE = 0xFF, 0xFE


def ends_in_escape(pattern: str, escape: str) -> bool:
    """Whether the pattern ends in an escape character that escapes nothing."""
    return bool(escape) and pattern.replace(escape * 2, "").endswith(escape)


def compile_pattern(pattern: str, escape: str) -> bytes:
    """The compiled form: the pattern's bytes, with ANY for `%` and ONE for `_`. Several `%` in a row become one ANY."""
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
    """Whether a UTF-8 text matches a compiled pattern. The search backtracks only to the last ANY, so it is bounded."""
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
    """The position after the character at `at`."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def is_like(text: str, pattern: str, escape: str) -> bool:
    """Whether a literal text matches a pattern that is not compiled."""
    return matches(text.encode(), compile_pattern(pattern, escape))
