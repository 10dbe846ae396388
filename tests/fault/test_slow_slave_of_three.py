"""One slow slave of two: it leaves the set of in-sync replicas, the others go on replicated, and it comes back."""

import time

import pytest

from common.cluster.group_record import GroupState
from tests.fault.replicated_group import ReplicatedGroup
from tests.services.failing_disk import SYNC, WRITE
from tests.waiting import until

STALL_S_MAX = 2.5
LATER_GAP_S_MAX = 1.0
"""Without the slow slave, on a busy machine. Each of the slow slave's writes takes three times as long."""
SLOW_MS = 3_000
BROKERS = ("a", "b", "c")
SLOW = "b"


@pytest.fixture
def group(tmp_path, slow_disk):
    with ReplicatedGroup(
        tmp_path / "group", f"file://{tmp_path}/config", brokers=BROKERS,
        environments={SLOW: slow_disk.environment},
    ) as made:  # fmt: skip
        yield made


def test_a_slow_slave_of_two_leaves_the_set_and_the_others_stay_replicated(group, load, slow_disk):
    load.wait_more(500)
    master = group.master
    since_s = time.monotonic()
    with slow_disk.slow(WRITE | SYNC, ".seg", SLOW_MS):
        until(lambda: SLOW not in group.record.in_sync, "the slow slave leaves the set", 40)
        left_s = time.monotonic()
        assert slow_disk.failed
        load.wait_more(1_000)
        record = group.record
        assert (record.state, record.master) == (GroupState.SYNC_REPLICATION, master)
        assert set(record.in_sync) == {*BROKERS} - {SLOW}
        stall_s, later_gap_s = load.gap_s(since_s, left_s), load.gap_s(left_s, time.monotonic())
    print(f"sends stalled for {stall_s * 1000:.0f} ms, and then for at most {later_gap_s * 1000:.0f} ms")
    assert stall_s < STALL_S_MAX
    assert later_gap_s < LATER_GAP_S_MAX
    group.wait_in_sync()
    load.wait_more(500)
    load.finish().assert_clean()
    assert load.refused == [], load.facts["refusals"]
