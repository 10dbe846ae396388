"""The frames that a master sends to one slave, and its conclusions from answers and from silence."""

import pytest

from engine.link.errors import PayloadError
from engine.replication import native, shipment
from engine.replication.frames import BytesFrame, SegmentFrame
from engine.replication.shipment import (
    CATCH_UP_BYTES_PER_MS,
    FRAME_BYTES,
    HEARTBEAT_MS,
    LATE_MS,
    LIVE_MS,
    SILENT_MS,
    STALLED_MS,
    WINDOW_BYTES,
    Shipment,
)

FORMS = {"reference": shipment.Shipment} | ({"native": native.Shipment} if native.NATIVE else {})

EPOCH = 7
SEGMENT = 32 << 20


class ZeroLog:
    """A log of zero bytes in segments of 32 MiB."""

    def __init__(self) -> None:
        self.end_position = 64

    def read(self, position: int, bytes_max: int) -> bytes:
        left = min(self.end_position, position - position % SEGMENT + SEGMENT) - position
        return bytes(min(bytes_max, left)) if position % SEGMENT else b""

    def next_segment(self, position: int) -> tuple[int, bytes]:
        return position, bytes(64)


@pytest.fixture
def log() -> ZeroLog:
    return ZeroLog()


@pytest.fixture(params=FORMS)
def slave(log, request) -> Shipment:
    return FORMS[request.param](log, incarnation=5, epoch=EPOCH, position=64, now_ms=1000)


def sent(slave: Shipment, now_ms: int = 1000, is_awaited: bool = True) -> list[SegmentFrame | BytesFrame]:
    found = []
    while (frame := slave.next_frame(50, now_ms, is_awaited)) is not None:
        found.append(frame)
    return found


def test_bytes_go_in_frames_until_the_window_is_full_and_on_when_the_slave_has_them(slave, log):
    log.end_position = 64 + 2 * WINDOW_BYTES
    frames = sent(slave)
    assert sum(len(frame.data) for frame in frames) == WINDOW_BYTES
    assert {len(frame.data) for frame in frames} == {FRAME_BYTES} and frames[1].position == 64 + FRAME_BYTES
    assert {(frame.epoch, frame.confirmed) for frame in frames} == {(EPOCH, 50)}
    slave.told(EPOCH, 64 + FRAME_BYTES, 0, 1001)
    assert [frame.position for frame in sent(slave, 1001)] == [64 + WINDOW_BYTES]


def test_a_slave_for_which_no_caller_waits_gets_all_that_it_takes_while_nothing_is_appended(slave, log):
    log.end_position = 64 + 2 * WINDOW_BYTES
    sent(slave, 1000, is_awaited=False)  # it has seen the append
    assert sum(len(frame.data) for frame in sent(slave, 1000 + LIVE_MS, is_awaited=False)) > WINDOW_BYTES // 2
    assert slave.room == 0


def test_such_a_slave_gets_its_pace_and_twice_what_is_appended_while_there_are_appends(slave, log):
    log.end_position = 64 + 64 * WINDOW_BYTES
    sent(slave, 1000, is_awaited=False)
    slave.told(EPOCH, slave.sent, 0, 1000)
    got, appended = 0, 0
    for now_ms in range(1001, 1201):
        log.end_position += 10_000
        appended += 10_000
        got += sum(len(frame.data) for frame in sent(slave, now_ms, is_awaited=False))
        slave.told(EPOCH, slave.sent, 0, now_ms)
    pace = 200 * CATCH_UP_BYTES_PER_MS + 2 * appended
    assert pace - FRAME_BYTES <= got <= pace + FRAME_BYTES


def test_a_slave_that_joins_is_not_held_to_the_pace(slave, log):
    log.end_position = 64 + 2 * WINDOW_BYTES
    sent(slave, 1000, is_awaited=False)
    assert slave.room and sum(len(frame.data) for frame in sent(slave, 1000)) and slave.room == 0


def test_bytes_that_another_sends_count_as_sent(slave, log):
    assert slave.is_idle(64, 1000) and not slave.is_idle(72, 1000) and not slave.is_idle(64, 1000 + HEARTBEAT_MS)
    log.end_position = 1064
    slave.took(1064, 1000)
    assert slave.room == WINDOW_BYTES - 1000 and slave.is_idle(1064, 1000) and sent(slave) == []


def test_the_header_of_the_next_segment_goes_between_the_bytes_of_both(slave, log):
    log.end_position = SEGMENT + 100
    frames = []
    while slave.sent != log.end_position:
        frames += sent(slave)
        slave.told(EPOCH, slave.sent, 0, 1000)
    assert isinstance(frames[-2], SegmentFrame) and frames[-1] == BytesFrame(EPOCH, SEGMENT + 64, 50, bytes(36))


def test_without_bytes_a_heartbeat_goes_after_100_ms_of_silence(slave):
    assert sent(slave, 1000 + HEARTBEAT_MS - 1) == []
    assert sent(slave, 1000 + HEARTBEAT_MS) == [BytesFrame(EPOCH, 64, 50)]
    assert slave.heartbeat_at_ms == 1000 + 2 * HEARTBEAT_MS


def test_what_the_slave_tells_is_kept_with_its_incarnation(slave, log):
    log.end_position = 1000
    sent(slave)
    slave.told(EPOCH, 700, 300, 1001)
    assert (slave.incarnation, slave.stored, slave.synced) == (5, 700, 300)


@pytest.mark.parametrize("wrong", [(EPOCH - 1, 700, 0), (EPOCH, 1001, 0), (EPOCH, 499, 0), (EPOCH, 600, 399)])
def test_a_stored_that_cannot_be_is_refused_and_changes_nothing(slave, log, wrong):
    log.end_position = 1000
    sent(slave)
    slave.told(EPOCH, 500, 400, 1001)
    with pytest.raises(PayloadError, match="STORED"):
        slave.told(*wrong, 1002)
    assert (slave.stored, slave.synced) == (500, 400)


def test_a_slave_is_silent_when_nothing_comes_from_it(slave):
    assert not slave.is_silent(1000 + SILENT_MS - 1) and slave.is_silent(1000 + SILENT_MS)
    slave.told(EPOCH, 64, 0, 1500)
    assert not slave.is_silent(1500 + SILENT_MS - 1)


def test_a_slave_is_stalled_when_bytes_wait_for_it_and_it_takes_none(slave, log):
    assert not slave.is_stalled(9000), "nothing waits"
    log.end_position = 1000
    sent(slave, 9000)
    slave.told(EPOCH, 64, 0, 9000 + STALLED_MS - 1)
    assert not slave.is_stalled(9000 + STALLED_MS - 1) and slave.is_stalled(9000 + STALLED_MS)
    slave.told(EPOCH, 65, 0, 9600)
    assert not slave.is_stalled(9600 + STALLED_MS - 1) and slave.is_stalled(9600 + STALLED_MS)
    slave.told(EPOCH, 1000, 0, 9700)
    assert not slave.is_stalled(99_000)


def test_a_slave_is_late_when_it_takes_less_than_is_appended_and_not_when_it_keeps_up(slave, log):
    def late_after_ms(bytes_taken: int) -> int | None:
        for now_ms in range(1000, 31_000, 20):
            log.end_position += 40_000
            sent(slave, now_ms)
            slave.told(EPOCH, min(slave.sent, slave.stored + bytes_taken), 0, now_ms)
            assert not slave.is_stalled(now_ms) and not slave.is_silent(now_ms)
            if slave.is_late(now_ms):
                return now_ms - 1000
        return None

    assert late_after_ms(40_000) is None
    found = late_after_ms(20_000)
    assert found is not None and found <= 4 * LATE_MS
    slave.told(EPOCH, slave.sent, 0, 31_000)
    assert not slave.is_late(31_000)
