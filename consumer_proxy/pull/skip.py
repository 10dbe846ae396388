"""Steps over Thrift-binary fields without decoding them. The reference of common/wire/_skip.pxd."""

from collections.abc import Iterator

from engine.link.errors import PayloadError

STOP, STRUCT, MAP, SET, LIST = 0, 12, 13, 14, 15
STRING, I32 = 11, 8
FIXED_SIZES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
DEPTH_MAX = 16


def fields(data: bytes, at: int, depth: int = 1) -> Iterator[tuple[int, int, int, int]]:
    """Each field of the struct at `at` as (type, id, start of the value, end of the value); the stop comes last.

    The last item is (STOP, 0, position after the stop, the same).

    Raises:
        PayloadError: malformed, or it runs past the end.
    """
    while True:
        kind = _take(data, at, 1)[0]
        if kind == STOP:
            yield STOP, 0, at + 1, at + 1
            return
        field = int.from_bytes(_take(data, at + 1, 2), "big")
        end = skip(data, at + 3, kind, depth)
        yield kind, field, at + 3, end
        at = end


def skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """The end of the value that starts at `at`. Raises PayloadError."""
    if kind in FIXED_SIZES:
        _take(data, at, FIXED_SIZES[kind])
        return at + FIXED_SIZES[kind]
    if depth > DEPTH_MAX:
        raise PayloadError(f"nested deeper than {DEPTH_MAX}")
    if kind == STRING:
        size = int.from_bytes(_take(data, at, 4), "big")
        _take(data, at + 4, size)
        return at + 4 + size
    if kind == STRUCT:
        *_, (_, _, _, end) = fields(data, at, depth + 1)
        return end
    if kind == MAP:
        key, value, *count = _take(data, at, 6)
        return _skip_elements(data, at + 6, (key, value), int.from_bytes(count, "big"), depth)
    if kind in (SET, LIST):
        element, *count = _take(data, at, 5)
        return _skip_elements(data, at + 5, (element,), int.from_bytes(count, "big"), depth)
    raise PayloadError(f"unknown type {kind}")


def _skip_elements(data: bytes, at: int, kinds: tuple[int, ...], count: int, depth: int) -> int:
    if count * len(kinds) > len(data) - at:
        raise PayloadError("more elements than bytes")
    for _ in range(count):
        for kind in kinds:
            at = skip(data, at, kind, depth + 1)
    return at


def _take(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise PayloadError(f"ends at byte {len(data)}, before byte {at + size}")
    return data[at : at + size]
