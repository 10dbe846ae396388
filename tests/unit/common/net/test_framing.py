"""The size of an unframed message: the reference, and the native form against it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import common.net as net
from common import contract
from common.contract import Credential, Message, SendRequest
from common.net.framing import FramingError, Incomplete, MessageScan, message_size

CALL = contract.encode_call(
    "send",
    7,
    SendRequest(
        credential=Credential(app="a", key_id="k", issued_at_ms=1, signature=b"s" * 32),
        messages=[Message(topic="orders", body=b"x" * 40, properties={"a": "1", "b": "2"}, delay_ms=5)] * 3,
        timeout_ms=100,
    ),
)


def reference(data: bytes) -> tuple[int, int]:
    """(size, need) as the native function gives them."""
    try:
        return message_size(data), 0
    except Incomplete as more:
        return 0, more.args[0]
    except FramingError:
        return -1, 0


def reference_in_pieces(pieces: list[bytes]) -> tuple[int, int]:
    """The same of a message that comes in these pieces, scanned after each."""
    scan, data, outcome = MessageScan(), b"", (0, 0)
    for piece in pieces:
        data += piece
        try:
            return scan.size(data), 0
        except Incomplete as more:
            outcome = 0, more.args[0]
        except FramingError:
            return -1, 0
    return outcome


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_scan_that_goes_on_finds_what_one_from_the_start_finds(data):
    frame = bytearray(CALL)
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(frame)), max_size=6)))
    pieces = [bytes(frame[start:end]) for start, end in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
    found = reference_in_pieces(pieces)
    assert found == reference(bytes(frame))
    if net.NATIVE:
        from common.net._framing import message_size_in_pieces

        size, need = message_size_in_pieces(pieces)
        assert (size, need if size == 0 else 0) == found


def test_a_call_of_many_small_parts_that_comes_in_many_pieces_is_looked_at_once():
    """Begun anew at each piece, 60,000 fields in pieces of 16 bytes would be 450 million steps."""
    call = CALL[:-1] + b"\x02\x00\x63\x01" * 60_000 + b"\x00"
    scan, looked = MessageScan(), 0
    for size in range(16, len(call), 16):
        with pytest.raises(Incomplete):
            scan.size(memoryview(call)[:size])
        looked += 1
    assert looked > 10_000 and scan.size(call) == len(call)


def test_every_prefix_of_a_call_is_incomplete_with_a_bound_that_is_never_too_high():
    for size in range(len(CALL)):
        found, need = reference(CALL[:size])
        assert found == 0 and size < need <= len(CALL)
    assert reference(CALL + b"more") == (len(CALL), 0)


@pytest.mark.skipif(not net.NATIVE, reason="no native connections in this run")
@settings(max_examples=400, deadline=None)
@given(data=st.data())
@example(data=None)
def test_the_native_form_gives_the_same_size_bound_or_refusal_for_mutated_and_cut_calls(data):
    from common.net._framing import message_size as native

    frame = bytearray(CALL)
    if data is not None:
        for _ in range(data.draw(st.integers(0, 4))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        frame = frame[: data.draw(st.integers(0, len(frame)))]
    size, need = native(bytes(frame))
    assert (size, need if size == 0 else 0) == reference(bytes(frame))


@pytest.mark.parametrize("deep", [16, 17, 5000])
def test_nesting_ends_at_sixteen_whatever_the_message_claims(deep):
    head = b"\x80\x01\x00\x01\x00\x00\x00\x04send\x00\x00\x00\x01"
    size, _ = reference(head + b"\x0c\x00\x01" * deep + b"\x00" * (deep + 1))
    assert size == (-1 if deep > 16 else len(head) + 4 * deep + 1)
