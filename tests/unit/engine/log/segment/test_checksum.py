"""CRC-32C: by instruction, by tables and by google-crc32c the same."""

from random import Random

import google_crc32c
import pytest
from forms import load

TABLES, INSTRUCTION, LANES = 1, 2, 3


def test_the_check_value_of_the_standard(form):
    assert form.native.crc32c(b"123456789") == 0xE3069283
    assert form.native.crc32c(b"") == 0


def test_every_way_gives_the_same_checksum_for_every_size_and_alignment():
    if not load("native").native.NATIVE:
        pytest.skip("no native parts here")
    from engine.log.segment import _index

    random = Random(3)
    data = random.randbytes(70_000)
    try:
        for size in [*range(70), *range(180, 210), 255, *range(1530, 1800, 9), 4096, 65_536, 69_990]:
            start = random.randrange(8)
            part = data[start : start + size]
            expected = google_crc32c.extend(7, part)
            for way in (TABLES, INSTRUCTION, LANES):
                _index.choose_crc32c(way)
                assert _index.crc32c(part, 7) == expected, (size, way)
    finally:
        _index.choose_crc32c(LANES)
