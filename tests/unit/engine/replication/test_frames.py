"""Frames of replication: what is encoded comes back, and nothing else is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.link.errors import PayloadError
from engine.log.epochs import EpochStart
from engine.replication.frames import (
    EPOCHS_MAX,
    PROVEN_BYTES,
    BytesFrame,
    Fetch,
    Follow,
    Followed,
    SegmentFrame,
    StoredFrame,
)

U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)


@st.composite
def follows(draw):
    epochs = sorted(draw(st.sets(st.integers(1, (1 << 32) - 1), max_size=5)))
    starts = sorted(draw(st.lists(st.integers(0, 1 << 60), min_size=len(epochs), max_size=len(epochs))))
    end = max(starts, default=0) + draw(st.integers(1, 1 << 60))
    return Follow(draw(U32), draw(U64), end, tuple(map(EpochStart, epochs, starts)))


FRAMES = st.one_of(
    follows(),
    st.builds(lambda *of: Followed(of[0], of[1] + PROVEN_BYTES, *of[2:]), U32, st.integers(0, 1 << 60), U64,
              st.integers(0, PROVEN_BYTES), U32),
    st.builds(SegmentFrame, U32, st.binary(min_size=64, max_size=64)),
    st.builds(lambda *of: BytesFrame(*of[:3], of[3] * 8), U32, U64, U64, st.binary(max_size=9)),
    st.builds(lambda epoch, end, synced: StoredFrame(epoch, max(end, synced), min(end, synced)), U32, U64, U64),
    st.builds(Fetch, U64, U32, U32, U32),
)  # fmt: skip


@given(FRAMES)
def test_a_frame_comes_back_as_it_was_encoded(frame):
    assert type(frame).decode(frame.encode()) == frame


@given(FRAMES, st.data())
def test_a_frame_that_is_cut_off_or_longer_is_refused_or_another_valid_one(frame, data):
    encoded = frame.encode()
    changed = data.draw(
        st.one_of(st.integers(0, len(encoded) - 1).map(lambda end: encoded[:end]), st.just(encoded + b"x"))
    )
    try:
        assert type(frame).decode(changed).encode() == changed
    except PayloadError as error:
        assert str(error)


@pytest.mark.parametrize("kind", [Follow, Followed, SegmentFrame, BytesFrame, StoredFrame, Fetch])
@given(payload=st.binary(max_size=200))
def test_bytes_from_anywhere_are_refused_or_mean_what_they_encode(kind, payload):
    try:
        assert kind.decode(payload).encode() == payload
    except PayloadError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (Follow(1, 2, 500, (EpochStart(3, 100), EpochStart(3, 200))), "does not follow"),
        (Follow(1, 2, 500, (EpochStart(3, 200), EpochStart(4, 100))), "does not follow"),
        (Follow(1, 2, 500, (EpochStart(3, 500),)), "above the end"),
        (StoredFrame(1, 10, 11), "above the end 10"),
        (BytesFrame(1, 2, 3, b"1234567"), "no whole batches"),
        (Followed(1, 100, 0, 101, 0), "101 bytes below 100"),
        (Followed(1, 1 << 40, 0, PROVEN_BYTES + 1, 0), "a checksum of"),
    ],
)
def test_a_contradiction_is_named(payload, rule):
    with pytest.raises(PayloadError, match=rule):
        type(payload).decode(payload.encode())


def test_a_count_that_lies_costs_nothing():
    head = Follow(1, 2, 3).encode()[:-4]
    for count in (1, EPOCHS_MAX + 1, (1 << 32) - 1):
        with pytest.raises(PayloadError, match=f"do not fit {count} epochs"):
            Follow.decode(head + count.to_bytes(4, "little"))
