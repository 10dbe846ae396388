"""Catalogue rows TH2 and TH3: what is no call of this protocol, or a call of another method."""

import pytest

from common.wire import WireError
from common.wire.faults import WireFault
from tests.unit.common.wire.frames import header, i32, message, send, struct_of, text


def refused(walk, frame):
    with pytest.raises(WireError) as caught:
        walk(frame)
    return caught.value


def test_a_header_gives_name_sequence_id_and_kind(walker):
    assert walker.walk_header(header("größe".encode(), kind=4, seqid=-2)) == ("größe", -2, 4)


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x82\x21\x01\x04send\x1c",
        b'[1,"send",1,0,{}]',
        i32(4) + b"send\x01" + i32(0),
        b"\x80\x01\x01\x01" + text(b"send") + i32(0),
        b"\x80\x02\x00\x01" + text(b"send") + i32(0),
    ],
    ids=["http", "tls", "ssh", "compact", "json", "old non-strict", "third byte", "version 2"],
)
def test_another_protocol_is_refused_by_its_first_bytes(walker, first_bytes):
    for walk in (walker.walk_header, walker.walk_send, walker.walk_pull):
        fault = refused(walk, first_bytes)
        assert (fault.rule, fault.at, fault.seqid) == (WireFault.VERSION, 0, 0)


@pytest.mark.parametrize("name", [b"", b"s" * 65, b"s" * 65536, b"\xff\xfe", b"send\xc3"])
def test_a_name_that_is_empty_too_long_or_no_utf8_is_refused(walker, name):
    assert refused(walker.walk_header, header(name) + struct_of()).rule == WireFault.NAME


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_a_negative_name_size_is_refused(walker, size):
    assert refused(walker.walk_header, b"\x80\x01\0\1" + i32(size)).rule == WireFault.SIZE


def test_an_unknown_method_is_refused_with_the_calls_sequence_id(walker):
    fault = refused(walker.walk_send, header(b"sned", seqid=41) + struct_of())
    assert (fault.rule, fault.seqid) == (WireFault.METHOD, 41)
    assert refused(walker.walk_pull, send(message())).rule == WireFault.METHOD


@pytest.mark.parametrize("kind", [2, 3, 4])
def test_a_message_that_is_no_call_is_refused_though_its_header_reads(walker, kind):
    frame = header(kind=kind, seqid=9)
    assert walker.walk_header(frame)[2] == kind
    fault = refused(walker.walk_send, frame + struct_of())
    assert (fault.rule, fault.seqid) == (WireFault.KIND, 9)


@pytest.mark.parametrize("kind", [0, 5, 255])
def test_a_kind_that_thrift_does_not_have_is_refused(walker, kind):
    assert refused(walker.walk_header, header(kind=kind)).rule == WireFault.KIND


def test_two_calls_in_one_frame_are_refused(walker):
    frame = send(message())
    fault = refused(walker.walk_send, frame + frame)
    assert (fault.rule, fault.at) == (WireFault.TRAILING, len(frame))


@pytest.mark.parametrize("seqid", [0, -1, 2**31 - 1, -(2**31)])
def test_any_sequence_id_is_taken(walker, seqid):
    assert walker.walk_send(send(message()).replace(i32(7), i32(seqid), 1)).seqid == seqid


def test_a_frame_cut_anywhere_is_refused(walker):
    frame = send(message())
    for size in range(len(frame)):
        assert refused(walker.walk_send, frame[:size]).rule in (WireFault.TRUNCATED, WireFault.COUNT)


def test_only_bytes_are_a_frame(walker):
    with pytest.raises(TypeError):
        walker.walk_send(bytearray(send(message())))
    with pytest.raises(TypeError):
        walker.walk_header(None)
