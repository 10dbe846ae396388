"""SipHash-2-4 with 128 bits of output (Aumasson, Bernstein 2012). The reference of `common/native/siphash.h`."""

import struct

_MASK = 0xFFFFFFFFFFFFFFFF


def siphash(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with 128 bits of output."""
    k0, k1 = struct.unpack("<QQ", key)
    return siphash_of(k0, k1, data)


def siphash_of(k0: int, k1: int, data: bytes) -> bytes:
    v = [0x736F6D6570736575 ^ k0, 0x646F72616E646F6D ^ k1 ^ 0xEE, 0x6C7967656E657261 ^ k0, 0x7465646279746573 ^ k1]
    tail = len(data) & 7
    last = data[len(data) - tail :] + bytes(7 - tail) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data[: len(data) - tail] + last):
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _rounds(v, 4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, 4)
    return struct.pack("<QQ", low, v[0] ^ v[1] ^ v[2] ^ v[3])


def _rounds(v: list[int], count: int) -> None:
    v0, v1, v2, v3 = v
    for _ in range(count):
        v0 = v0 + v1 & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = v2 + v3 & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = v0 + v3 & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = v2 + v1 & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    v[:] = v0, v1, v2, v3


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & _MASK
