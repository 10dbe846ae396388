"""Reply tokens: the name of one waiting call. A consumer gets it with a request and returns it with the reply.

See docs/design/0013-request-reply.md. Layout:

    0 u8 version 1 ‖ 1 3 B 0 ‖ 4 u32 call ‖ 8 u64 instance ‖ 16 i64 reply_by_ms ‖ 24 16 B MAC        (little-endian)

Only a process with the cluster key can make and check a token. A token is valid for one call of one proxy process.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

TOKEN_SIZE = 40
INSTANCE_AT, REPLY_BY_AT = 8, 16
_VERSION = 1
_BODY = struct.Struct("<B3xIQq")
_INSTANCE, _REPLY_BY = struct.Struct("<Q"), struct.Struct("<q")
_MAC_SIZE = 16


class ReplyToken(NamedTuple):
    """`instance`: the waiting proxy process. `reply_by_ms`: Unix time after which the call no longer waits."""

    call: int
    instance: int
    reply_by_ms: int


def key_of(cluster_key: bytes) -> bytes:
    """The key of the tokens' MAC."""
    return blake2b(cluster_key, digest_size=32, person=b"penstock-reply").digest()


class ReplyTokens:
    """Makes and checks tokens of one cluster."""

    def __init__(self, cluster_key: bytes) -> None:
        self._keyed = blake2b(key=key_of(cluster_key), digest_size=_MAC_SIZE)

    def make(self, token: ReplyToken) -> bytes:
        """The token's 40 bytes."""
        body = _BODY.pack(_VERSION, *token)
        return body + self._mac(body)

    def check(self, data: bytes) -> ReplyToken | None:
        """The token's fields, or None for a token that was not made in this cluster."""
        if len(data) != TOKEN_SIZE or not compare_digest(self._mac(data[: _BODY.size]), data[_BODY.size :]):
            return None
        return read_token(data)

    def _mac(self, body: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(body)
        return mac.digest()


def read_token(data: bytes) -> ReplyToken | None:
    """Decode 40 bytes of a trusted source without a check; None for another version."""
    version, *fields = _BODY.unpack_from(data)
    return ReplyToken(*fields) if version == _VERSION else None


def instance_of(data: bytes, at: int = 0) -> int | None:
    """read_token().instance alone, of the token at `at`; 40 bytes must be there."""
    return _INSTANCE.unpack_from(data, at + INSTANCE_AT)[0] if data[at] == _VERSION else None


def reply_by_of(data: bytes, at: int = 0) -> int | None:
    """read_token().reply_by_ms alone."""
    return _REPLY_BY.unpack_from(data, at + REPLY_BY_AT)[0] if data[at] == _VERSION else None
