"""Id and key of a stored message, for look-ups."""

from common.wire.cursor import STRING, Cursor
from common.wire.faults import WireError

_KEY, _ID = 3, 6


def find_names(message: bytes) -> tuple[bytes | None, bytes | None]:
    """Return (id, key) of a message in Thrift binary; None for an unset one, or when the bytes are not a message."""
    cursor = Cursor(message)
    found: dict[int, bytes] = {}
    try:
        while True:
            kind, field = cursor.field()
            if not kind:
                return found.get(_ID), found.get(_KEY)
            if kind == STRING and field in (_ID, _KEY):
                found[field] = cursor.slice(*cursor.string())
            else:
                cursor.skip(kind, 1)
    except WireError:
        return None, None
