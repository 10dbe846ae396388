"""Kafka's murmur2: words are little-endian, the tail is not mixed like a word.

The reference of murmur2() in `_walk.pyx`.
"""

import struct

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the unsigned 32-bit hash; Kafka's Java code has the same bits as a signed number."""
    h = _SEED ^ (len(key) & _MASK)
    whole = len(key) & ~3
    for (k,) in struct.iter_unpack("<I", key[:whole]):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M ^ k * _M) & _MASK
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15
