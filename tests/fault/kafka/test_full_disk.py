"""Kafka's disk is full under dual writes, with Kafka as the home of one topic and as the second side of another."""

import os
from contextlib import closing, suppress

import pytest

from common.contract import Code, Message
from producer_proxy.journal.divergence import divergence
from tests.e2e.kafka.home import Sender
from tests.fault.kafka.test_outages import DualWritten, Load, stored_ok
from tests.services.small_disk import mounted
from tests.waiting import until

pytestmark = pytest.mark.slow
DISK = "512m"
LEFT_BYTES, STEP_BYTES = 2 << 20, 1 << 20
BODY_BYTES = 10_000
FULL_S_MAX = 120.0
EVEN_S_MAX = 240.0
"""What was taken while the disk was full is looked for by id, and copied, with bodies of that size."""


def fill(folder, left_bytes):
    """A file that takes all but this much of the file system, or less, as others write there, too."""
    path = folder / "filler"
    state = os.statvfs(folder)
    with path.open("wb") as file, suppress(OSError):
        for at in range(0, state.f_bavail * state.f_frsize - left_bytes, STEP_BYTES):
            os.posix_fallocate(file.fileno(), at, STEP_BYTES)
    return path


def test_a_full_disk_of_kafka_is_told_and_nothing_is_lost_once_it_has_room_again(tmp_path):
    with mounted(tmp_path / "disk", DISK) as disk, closing(DualWritten(tmp_path, disk)) as both:
        out, into = Load(both, "out", padding=BODY_BYTES), Load(both, "in", padding=BODY_BYTES)
        for each in (out, into):
            each.wait_for(Code.OK, 20)
        filler = fill(disk, LEFT_BYTES)
        until(lambda: "No space left on device" in both.brokers.told(1), "Kafka's disk is full", FULL_S_MAX)
        into.wait_for(Code.UNAVAILABLE, 5)
        out.wait_for(Code.OK, 20)
        with closing(Sender(both.penstock, both.application)) as sender:
            refused, taken = (sender.send(Message(topic=topic, id="one more"))[0] for topic in ("in", "out"))
        assert refused.code == Code.UNAVAILABLE and "kafka" in refused.error.lower(), refused
        assert taken.code == Code.OK
        filler.unlink()
        until(
            lambda: not both.brokers.nodes[0].is_running,
            "the broker ends, as its only directory has failed",
            FULL_S_MAX,
        )
        both.brokers.restart(1)
        into.wait_for(Code.OK, 20)
        codes = {"out": out.stop(), "in": into.stop()}
        assert set(codes["out"].values()) == {Code.OK}, "the secondary is none of the callers' business"
        until(lambda: divergence(both.journal, underway_ms=0).is_empty, "the divergence to be empty", EVEN_S_MAX)
        for topic, told in codes.items():
            both.assert_equal(topic)
            assert stored_ok(told) <= set(both.engine_ids(topic))
