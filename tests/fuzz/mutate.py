"""Seeded mutations of Thrift frames: what bit rot, lying lengths and hostile clients do to bytes."""

import random
import struct

INTERESTING_I32 = (-(2**31), -1, 0, 1, 2, 16, 64, 65, 249, 250, 1000, 1001, 4096, 65_536, 100_000, 2**31 - 1)
INTERESTING_BYTES = bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 0x7F, 0x80, 0xC3, 0xED, 0xFF])
FRAME_BYTES_MAX = 1 << 20


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice(INTERESTING_BYTES)


def set_i32(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + 4] = struct.pack(">i", rng.choice(INTERESTING_I32))


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def drop(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 16)]


def insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 16))


def repeat(data: bytearray, rng: random.Random) -> None:
    """A slice many times: a field that comes thousands of times, or a body that grows."""
    at = rng.randrange(len(data))
    piece = data[at : at + rng.randint(1, 64)]
    data[at:at] = piece * rng.choice((1, 2, 20, 2000))


def move(data: bytearray, rng: random.Random) -> None:
    at, to = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[at : at + rng.randint(1, 64)]
    data[to : to + len(piece)] = piece


MUTATIONS = (flip, flip, set_byte, set_byte, set_i32, set_i32, cut, drop, insert, repeat, move)


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    """A frame made from one or two seeds by one to six mutations; mostly one, for most pairs already break the call."""
    data = bytearray(rng.choice(seeds))
    if rng.random() < 0.1:
        other = rng.choice(seeds)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if data:
            rng.choice(MUTATIONS)(data, rng)
    return bytes(data[:FRAME_BYTES_MAX])
