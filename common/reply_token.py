"""Reply tokens: the name of one waiting call. A consumer gets it with a request and returns it with the reply.

See docs/design/0013-request-reply.md. Layout:

    0 u8 version ‖ 1 u24 wait_ms ‖ 4 u32 call ‖ 8 u64 instance ‖ 16 i64 reply_by_ms ‖ 24 16 B MAC  (little-endian)

wait_ms is 0 in tokens of earlier versions. It is what an engine goes by, since its clock may differ from the proxy's.
Only a process with the cluster key can make and check a token. A token is valid for one call of one proxy process.
Version 1 is in the log. Consumers get version 2, whose MAC has another key per application: it is valid for the
application that pulled the request.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

TOKEN_SIZE = 40
CALL_AT, INSTANCE_AT, REPLY_BY_AT = 4, 8, 16
VERSION, BOUND_VERSION = 1, 2
REPLY_KEY_SIZE = 32
MAC_AT = 24
_BODY = struct.Struct("<IIQq")
_WAIT_BITS = 8
"""Of the first number: the version lies below the wait."""
_CALL, _INSTANCE, _REPLY_BY = struct.Struct("<IQ"), struct.Struct("<Q"), struct.Struct("<q")
_MAC_SIZE = 16


class ReplyToken(NamedTuple):
    """
    Attributes:
        instance: the waiting proxy process.
        reply_by_ms: Unix time after which the call no longer waits, by that proxy's clock.
        wait_ms: how long the call waits, 0 to 2^24 - 1; 0: an earlier version made the token.
    """

    call: int
    instance: int
    reply_by_ms: int
    wait_ms: int = 0


def key_of(cluster_key: bytes) -> bytes:
    """The key of the tokens' MAC."""
    return blake2b(cluster_key, digest_size=32, person=b"penstock-reply").digest()


def reply_key(cluster_key: bytes, application: str) -> bytes:
    """The key of the MAC of tokens for an application's consumers."""
    key = key_of(cluster_key)
    return blake2b(application.encode(), key=key, digest_size=REPLY_KEY_SIZE, person=b"penstock-replier").digest()


def bind_token(token: bytes, key: bytes) -> bytes:
    """The form of a stored token for an application's consumers."""
    body = bytes((BOUND_VERSION,)) + token[1:MAC_AT]
    return body + _bound_mac(key, body)


def _bound_mac(key: bytes, body: bytes) -> bytes:
    # Key and body fill one block, where the keyed form takes two. BLAKE2b cannot be extended, so it is a MAC all the same.
    return blake2b(key + body, digest_size=_MAC_SIZE).digest()


def _mac_of(key: bytes, body: bytes) -> bytes:
    return blake2b(body, key=key, digest_size=_MAC_SIZE).digest()


class ReplyTokens:
    """Makes and checks tokens of one cluster."""

    def __init__(self, cluster_key: bytes) -> None:
        self._key = key_of(cluster_key)

    def make(self, token: ReplyToken) -> bytes:
        """The token's 40 bytes, as they are stored."""
        body = _BODY.pack(VERSION | token.wait_ms << _WAIT_BITS, token.call, token.instance, token.reply_by_ms)
        return body + _mac_of(self._key, body)

    def check(self, data: bytes) -> ReplyToken | None:
        """The fields of a stored token, or None for a token that was not made in this cluster."""
        if len(data) != TOKEN_SIZE or not compare_digest(_mac_of(self._key, data[:MAC_AT]), data[MAC_AT:]):
            return None
        return read_token(data)

    def unbind(self, data: bytes, key: bytes) -> bytes | None:
        """The stored form of a token that a replier returns, or None when it is not a token for the key's application.

        A token in the stored form is valid for every application: consumer proxies of earlier versions pass it on.
        """
        if data[:1] != bytes((BOUND_VERSION,)):
            return data if self.check(data) is not None else None
        if len(data) != TOKEN_SIZE or not compare_digest(_bound_mac(key, data[:MAC_AT]), data[MAC_AT:]):
            return None
        body = bytes((VERSION,)) + data[1:MAC_AT]
        return body + _mac_of(self._key, body)


def read_token(data: bytes) -> ReplyToken | None:
    """Decode 40 bytes of a trusted source without a check; None for another version."""
    first, call, instance, reply_by_ms = _BODY.unpack_from(data)
    return ReplyToken(call, instance, reply_by_ms, first >> _WAIT_BITS) if data[0] == VERSION else None


def instance_of(data: bytes, at: int = 0) -> int | None:
    """read_token().instance alone, of the token at `at`; 40 bytes must be there."""
    return _INSTANCE.unpack_from(data, at + INSTANCE_AT)[0] if data[at] == VERSION else None


def times_of(data: bytes, at: int = 0) -> tuple[int, int] | None:
    """read_token()'s reply_by_ms and wait_ms alone."""
    if data[at] != VERSION:
        return None
    return _REPLY_BY.unpack_from(data, at + REPLY_BY_AT)[0], int.from_bytes(data[at + 1 : at + 4], "little")


def call_of(data: bytes, at: int = 0) -> tuple[int, int] | None:
    """read_token()'s call and instance alone."""
    return _CALL.unpack_from(data, at + CALL_AT) if data[at] == VERSION else None
