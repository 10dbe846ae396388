"""The short form of `make nemesis`: a running group under every kind of fault once, and more until the time is over."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.cluster.coordination import VersionedRecord
from common.cluster.group_record import GroupRecord, GroupState
from tests.fault.nemesis import edges
from tests.fault.nemesis.judgement import EqualLogs, may_be_lost
from tests.fault.nemesis.site import SYNCED_STREAMS
from tests.services import require

ROOT = Path(__file__).parents[2]
MINUTES = float(os.environ.get("PENSTOCK_NEMESIS_MINUTES", "5"))
SEED = os.environ.get("PENSTOCK_SEED", "1")
REPLICAS = os.environ.get("PENSTOCK_REPLICAS", "2")
INSIDE = ["unshare", "--mount", "--propagation", "private"]
OVER_S = 600
"""Start, the faults of the first round beyond the time, and the verdict."""


def test_a_group_under_every_fault_loses_nothing_and_its_logs_are_equal():
    require(os.geteuid() == 0, "the nemesis needs root, for network namespaces and file systems")
    for program in ("unshare", "nsenter", "ip", "nft", "tc", "mkfs.ext4", "mkfs.xfs"):
        require(shutil.which(program), f"the nemesis needs {program}")
    for kind in ("ext4", "xfs"):
        probe = [*INSIDE, sys.executable, "-m", "tests.fault.power_cut", kind, "--probe"]
        done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, timeout=60)
        require(done.returncode == 0, f"no {kind} on a loop device can be shut down here: {done.stderr.strip()[-200:]}")
    command = [sys.executable, "-m", "tests.fault.nemesis", "--minutes", str(MINUTES), "--seed", SEED]
    process = subprocess.Popen(
        [*INSIDE, *command, "--replicas", REPLICAS],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=MINUTES * 60 + OVER_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    print(out)
    assert process.returncode == 0, out[-20_000:]


def record(state, master, in_sync, epoch=1, joining=None):
    return GroupRecord(epoch, GroupState[state], master, in_sync, joining or {})


LONE = record("SINGLE_MASTER", "a", {"a": 1})
FOLLOWED = record("ASYNC_REPLICATION", "a", {"a": 1})
JOINING = record("SEMI_SYNC", "a", {"a": 1}, joining={"b": 2})
BOTH = record("SYNC_REPLICATION", "a", {"a": 1, "b": 2})
THREE = record("SYNC_REPLICATION", "a", {"a": 1, "b": 2, "c": 3})


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (None, LONE, edges.FOUNDED),
        (LONE, FOLLOWED, edges.FOLLOWED),
        (FOLLOWED, LONE, edges.UNFOLLOWED),
        (FOLLOWED, JOINING, edges.BEGAN),
        (JOINING, BOTH, edges.JOINED),
        (JOINING, FOLLOWED, edges.FAILED),
        (BOTH, THREE, edges.MEMBERS),
        (BOTH, BOTH, edges.UPKEEP),
        (BOTH, record("SINGLE_MASTER", "a", {"a": 1}, 2), edges.ALONE),
        (BOTH, record("SINGLE_MASTER", "b", {"b": 2}, 2), edges.PROMOTED),
        (BOTH, record("SYNC_REPLICATION", "b", {"a": 1, "b": 2}, 2), edges.PROMOTED),
        (BOTH, record("SINGLE_MASTER", "b", {"b": 5}, 2), edges.RESTARTED),
        (LONE, record("SINGLE_MASTER", "a", {"a": 5}, 2), edges.RESTARTED),
    ],
)
def test_each_change_is_an_edge_of_the_table(old, new, name):
    assert edges.edge(old, new) == name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BOTH, record("SINGLE_MASTER", "b", {"b": 2}, 1)),
        (BOTH, record("SINGLE_MASTER", "a", {"a": 1}, 1)),
        (JOINING, record("SINGLE_MASTER", "b", {"b": 2}, 2)),
        (LONE, record("SINGLE_MASTER", "b", {"b": 2}, 2)),
        (LONE, BOTH),
        (LONE, JOINING),
        (BOTH, FOLLOWED),
        (FOLLOWED, record("SEMI_SYNC", "a", {"a": 1}, 2, {"b": 2})),
    ],
    ids=["promoted in the epoch", "alone in the epoch", "promoted while joining", "promoted from outside", "skips a state", "skips another",
         "loses its slave without an epoch", "joins under another epoch"],
)  # fmt: skip
def test_a_change_that_is_no_edge_is_illegal(old, new):
    with pytest.raises(edges.IllegalEdge):
        edges.edge(old, new)


def test_edges_over_a_gap_of_the_history_are_not_counted():
    changes = [VersionedRecord(LONE, 1), VersionedRecord(FOLLOWED, 2), VersionedRecord(BOTH, 4)]
    assert edges.count(changes) == ({edges.FOUNDED: 1, edges.FOLLOWED: 1}, 1)


@pytest.mark.parametrize(
    ("stream", "before_s", "may"),
    [(0, 0.9, True), (0, 1.1, False), (SYNCED_STREAMS[0], 0.02, True), (SYNCED_STREAMS[0], 0.2, False)],
)
def test_only_what_no_disk_had_may_be_lost_with_the_power_of_all(stream, before_s, may):
    assert may_be_lost([(50.0, 50.1), (100.0, 100.1)], stream, 100.0 - before_s) is may
    assert not may_be_lost([(100.0, 100.1)], stream, 101.0)
    assert not may_be_lost([], stream, 100.0 - before_s)


def test_logs_are_equal_but_for_room_that_is_not_written_yet(tmp_path):
    first, other = tmp_path / "a", tmp_path / "b"
    for each in (first, other):
        each.mkdir()
        (each / "0.seg").write_bytes(b"log" * 100)
    (other / "0.seg").write_bytes(b"log" * 100 + bytes(50))
    (first / "1.seg").write_bytes(b"header of a segment that is not used yet")
    assert EqualLogs([first, other]).difference() == ""
    (other / "0.seg").write_bytes(b"log" * 99 + b"lag")
    assert "0.seg: equal up to 298 of 300" in EqualLogs([first, other]).difference()
    (other / "0.seg").unlink()
    assert EqualLogs([first, other]).difference().startswith("segments")
