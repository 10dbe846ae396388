"""A slave takes frames of its master only, and tells once per turn what it has."""

import pytest

from engine.link.errors import PayloadError
from engine.replication import native
from engine.replication.following import JOIN_SYNC_MS, REPORT_MS, SYNC_BYTES, SYNC_MS, Following, StaleEpochError
from engine.replication.frames import BytesFrame, SegmentFrame, StoredFrame

EPOCH = 7


class CountingLog:
    """A log that takes any bytes."""

    def __init__(self) -> None:
        self.end_position, self.durable_position = 64, 64
        self.headers: list[bytes] = []

    def apply(self, position: int, data: bytes) -> None:
        assert position == self.end_position
        self.end_position += len(data)

    def begin_segment(self, header: bytes) -> None:
        self.headers.append(header)


@pytest.fixture
def log() -> CountingLog:
    return CountingLog()


@pytest.fixture(params=[pytest.param(Following, id="reference"), pytest.param(native.Following, id="selected")])
def slave(request, log) -> Following:
    return request.param(log, EPOCH, 1000)


def test_a_frame_of_an_epoch_that_is_over_is_refused_and_nothing_is_written(slave, log):
    with pytest.raises(StaleEpochError, match="epoch 6"):
        slave.take_bytes(BytesFrame(EPOCH - 1, 64, 1000, bytes(8)), 1001)
    with pytest.raises(StaleEpochError):
        slave.take_segment(SegmentFrame(EPOCH - 1, bytes(64)), 1001)
    assert (log.end_position, log.headers, slave.confirmed) == (64, [], 0)


def test_a_frame_of_an_epoch_that_this_broker_has_not_adopted_is_refused(slave, log):
    with pytest.raises(PayloadError, match="has not adopted it"):
        slave.take_bytes(BytesFrame(EPOCH + 1, 64, 1000, bytes(8)), 1001)
    assert log.end_position == 64


def test_a_broker_that_does_not_follow_any_more_takes_nothing(slave, log):
    slave.is_over = True
    with pytest.raises(StaleEpochError, match="does not follow any more"):
        slave.take_bytes(BytesFrame(EPOCH, 64, 1000, bytes(8)), 1001)
    assert (log.end_position, slave.confirmed) == (64, 0)


def test_what_is_confirmed_is_in_this_log_and_never_falls(slave):
    slave.take_bytes(BytesFrame(EPOCH, 64, 1000, bytes(16)), 1001)
    assert slave.confirmed == 80
    slave.take_bytes(BytesFrame(EPOCH, 80, 70, bytes(16)), 1002)
    assert slave.confirmed == 80
    slave.take_bytes(BytesFrame(EPOCH, 96, 88), 1003)
    assert slave.confirmed == 88


def test_a_report_goes_when_something_has_changed_and_every_100_ms(slave, log):
    assert slave.report(1000) == StoredFrame(EPOCH, 64, 64)
    assert slave.report(1000 + REPORT_MS - 1) is None
    slave.take_bytes(BytesFrame(EPOCH, 64, 0, bytes(8)), 1050)
    assert slave.report(1050) == StoredFrame(EPOCH, 72, 64)
    log.durable_position = 72
    assert slave.report(1051) == StoredFrame(EPOCH, 72, 72)
    assert slave.report(1051 + REPORT_MS - 1) is None
    assert slave.report(1051 + REPORT_MS) == StoredFrame(EPOCH, 72, 72)


def test_a_sync_is_due_200_ms_after_the_first_unsynced_bytes(slave, log):
    assert not slave.begins_sync(9000, False)
    slave.take_bytes(BytesFrame(EPOCH, 64, 0, bytes(8)), 9000)
    slave.take_bytes(BytesFrame(EPOCH, 72, 0, bytes(8)), 9150)
    assert not slave.begins_sync(9000 + SYNC_MS - 1, False) and slave.begins_sync(9000 + SYNC_MS, False)
    log.durable_position = 80
    slave.report(9201)
    assert not slave.begins_sync(99_000, False)


def test_much_that_is_not_synced_does_not_wait_for_the_time(slave, log):
    slave.take_bytes(BytesFrame(EPOCH, 64, 0, bytes(SYNC_BYTES - 8)), 9000)
    assert not slave.begins_sync(9001, False)
    slave.take_bytes(BytesFrame(EPOCH, log.end_position, 0, bytes(8)), 9001)
    assert slave.begins_sync(9001, False)
    log.durable_position = log.end_position
    assert not slave.begins_sync(9002, False)


def test_a_slave_that_joins_syncs_at_the_next_tick(slave, log):
    slave.take_bytes(BytesFrame(EPOCH, 64, 0, bytes(8)), 9000)
    assert not slave.begins_sync(9000 + JOIN_SYNC_MS, False) and slave.begins_sync(9000 + JOIN_SYNC_MS, True)


def test_a_slave_that_always_has_unsynced_bytes_syncs_every_200_ms(slave, log):
    begun = []
    for now_ms in range(9000, 11_000, 20):
        slave.take_bytes(BytesFrame(EPOCH, log.end_position, 0, bytes(8)), now_ms)
        if slave.begins_sync(now_ms, False):
            begun.append(now_ms)
            log.durable_position = log.end_position
        slave.take_bytes(BytesFrame(EPOCH, log.end_position, 0, bytes(8)), now_ms)
        slave.report(now_ms)
    assert begun == list(range(9000 + SYNC_MS, 11_000, SYNC_MS))


def test_silence_counts_from_the_last_frame_of_any_kind(slave):
    assert slave.silent_ms(1900) == 900
    slave.take_segment(SegmentFrame(EPOCH, bytes(64)), 1900)
    slave.take_bytes(BytesFrame(EPOCH, 64, 0), 1950)
    assert slave.silent_ms(2000) == 50
