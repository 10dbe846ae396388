"""A slave with a slow disk, and one with a full disk, under a rich load: it leaves the set, and comes back by itself."""

import contextlib
import os
import subprocess
import time

import pytest

from common.cluster.group_record import GroupState
from tests.e2e.test_full_disk import fill
from tests.fault.replicated_group import ReplicatedGroup
from tests.services import require
from tests.services.failing_disk import SYNC, WRITE
from tests.waiting import until

STALL_S_MAX = 2.5
SLOW_MS = 3_000
MASTER, SLAVE = "a", "b"
SMALL = ("--segment-mib", "1", "--disk-reserve-mib", "8", "--disk-percents", "97,98,99")
"""Segments that are full after some seconds of the load, so that the slave needs room."""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 128 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = (
        not os.geteuid()
        and not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(folder)]).returncode
    )
    require(made, "a small file system needs root and mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def group(tmp_path, slow_disk, small_disk):
    """Broker b's disk is slow or full when a test says so."""
    with ReplicatedGroup(
        tmp_path / "group", f"file://{tmp_path}/config", data={SLAVE: small_disk / "data"}, engine_options=SMALL,
        environments={SLAVE: slow_disk.environment},
    ) as made:  # fmt: skip
        assert made.master == MASTER
        yield made


def stall_s(group, load, trouble):
    """The longest time without an acknowledged message from the begin of the trouble until the slave has left the set."""
    group.wait_in_sync()
    load.wait_more(500)
    since_s = time.monotonic()
    trouble()
    until(lambda: group.record.state is not GroupState.SYNC_REPLICATION, "the slave leaves the set", 40)
    load.wait_more(500)
    return load.gap_s(since_s, time.monotonic())


def test_a_slave_with_a_slow_and_then_a_full_disk_stalls_sends_for_a_moment_and_comes_back(
    group, load, slow_disk, small_disk
):
    with contextlib.ExitStack() as slow:
        gap_s = stall_s(group, load, lambda: slow.enter_context(slow_disk.slow(WRITE | SYNC, ".seg", SLOW_MS)))
        assert slow_disk.failed
        print(f"slow disk: sends stalled for {gap_s * 1000:.0f} ms")
        assert gap_s < STALL_S_MAX
    group.wait_in_sync()
    gap_s = stall_s(group, load, lambda: fill(small_disk))
    print(f"full disk: sends stalled for {gap_s * 1000:.0f} ms")
    assert gap_s < STALL_S_MAX
    assert group.processes[SLAVE].is_running
    (small_disk / "ballast").unlink()
    group.wait_in_sync()
    load.wait_more(500)
    load.finish().assert_clean()
    assert load.refused == [], load.facts["refusals"]
