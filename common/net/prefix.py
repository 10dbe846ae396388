"""Credential at the start of an incomplete call, for the admission of a connection's first long frame.

Standard writers put fields in the order of their ids, and the credential is field 1 of field 1. A frame above the limit
before authentication is accepted only when its first bytes contain a credential that verifies.
"""

from common.net.framing import FramingError, Incomplete, ValueScan

_FIELD_1 = b"\x0c\x00\x01"


def credential_at_start(prefix: bytes) -> bytes | None:
    """Return the bytes of the credential struct (fields and STOP) of a strict binary call.

    None when they are not at the start.
    """
    if len(prefix) < 12 or prefix[:2] != b"\x80\x01":
        return None
    name_size = int.from_bytes(prefix[4:8], "big", signed=True)
    at = 12 + name_size
    if not 0 <= name_size <= 64 or prefix[at : at + 6] != _FIELD_1 + _FIELD_1:
        return None
    try:
        end = ValueScan(at + 6).end(prefix)
    except (FramingError, Incomplete):
        return None
    return prefix[at + 6 : end]
