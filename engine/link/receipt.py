"""Receipts: a lease's token, then the number of one message within the lease.

The token is signed by the engine (engine/delivery/receipt.py). Proxies read the queue out of it and compare tokens, no
more.
"""

import struct

from engine.link.integers import U32

TOKEN = struct.Struct("<BxHIQQQ")
"""Version ‖ queue ‖ count ‖ topic hash ‖ base offset ‖ lease; the MAC follows."""

TOKEN_SIZE = 48
TOKEN_VERSION = 1
MAC_SIZE = 16
NO_TOKEN = bytes(TOKEN_SIZE)
"""Token of messages that are not leased."""

RECEIPT_SIZE = 52

_QUEUE_AND_HASH = struct.Struct("<2xH4xQ")


def encode_receipt(token: bytes, delta: int) -> bytes:
    """The receipt of message number `delta` of a lease."""
    return token + U32.pack(delta)


def split_receipt(receipt: bytes) -> tuple[bytes, int] | None:
    """(token, delta); None when the bytes are not a receipt."""
    if len(receipt) != RECEIPT_SIZE:
        return None
    return receipt[:TOKEN_SIZE], U32.unpack_from(receipt, TOKEN_SIZE)[0]


def count_of_token(token: bytes) -> int:
    """Number of messages of the lease, unverified."""
    return int.from_bytes(token[4:8], "little")


def queue_of_token(token: bytes, at: int = 0) -> tuple[int, int]:
    """(topic hash, queue) of the token at `at`, unverified: good for routing only."""
    queue, topic_hash = _QUEUE_AND_HASH.unpack_from(token, at)
    return topic_hash, queue
