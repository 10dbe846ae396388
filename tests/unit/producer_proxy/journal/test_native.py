"""The native and the reference form of encoding intents give the same bytes."""

import random

import pytest

from producer_proxy.buffer.blocks import Block, blocks
from producer_proxy.buffer.entry import decode
from producer_proxy.journal import intents, native
from producer_proxy.targets.base import MessageSlice
from tests.unit.producer_proxy.journal.side import SideDestination

SEGMENT_HEAD_BYTES = 16


def random_messages(chance):
    return [
        MessageSlice(
            SideDestination("t" * chance.randint(1, 249), 4),
            chance.choice((None, 3, b"", chance.randbytes(chance.randint(1, 300)))),
            chance.choice((None, chance.randbytes(16))),
            chance.randbytes(chance.randint(0, 400)),
        )
        for _ in range(chance.randint(1, 20))
    ]


@pytest.mark.parametrize("encode", [intents.intents_of, native.intents_of], ids=["reference", "selected"])
def test_intents_are_blocks_of_the_buffers_format_at_the_positions_that_are_returned(encode):
    chance = random.Random(7)
    for _ in range(50):
        messages, position = random_messages(chance), 8 * chance.randint(2, 1 << 40)
        data, positions = encode(position, 1_700_000_000_000, messages)
        found = list(blocks(bytes(SEGMENT_HEAD_BYTES) + data, position - SEGMENT_HEAD_BYTES))
        assert all(isinstance(each, Block) for each in found)
        assert [position - SEGMENT_HEAD_BYTES + each.offset for each in found] == positions
        for block, message in zip(found, messages, strict=True):
            entry = decode(block.payload)
            key = message.key if isinstance(message.key, bytes) else None
            assert entry == (message.destination.name, key, message.assigned_id, message.encoded, 1_700_000_000_000)


def test_both_forms_give_the_same_bytes():
    chance = random.Random(8)
    for _ in range(200):
        messages, position = random_messages(chance), 8 * chance.randint(2, 1 << 40)
        assert native.intents_of(position, 5, messages) == intents.intents_of(position, 5, messages)


@pytest.mark.parametrize("encode", [intents.intents_of, native.intents_of], ids=["reference", "selected"])
def test_no_messages_are_no_bytes(encode):
    assert encode(16, 5, []) == (b"", [])
