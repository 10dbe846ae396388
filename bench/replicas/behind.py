"""A slave that is 1 GiB behind catches up with a master under load.

Question: how soon is it in sync again, and do callers notice?
Settings: an open loop of 5,000 single-message calls/s, 128 bytes, REPLICATED, 16 topics × 8 queues: with the slave in
    sync, with the slave stopped (SIGSTOP), and, after 1 GiB (times --scale) was written in messages of 2 KiB, from its
    SIGCONT until it is in sync. p99 while it catches up is compared with that of the master alone just before: both
    wait for the disk, as REPLICATED does without a slave in sync. The first two last --seconds each.
Excluded: connecting; the first two seconds of each part but the last.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench import instance
from bench.errors import RunError
from bench.figures import Figure
from bench.generator import STORED, LoadTarget, run_load
from bench.measure import fill, on_one_core, settle
from bench.replicas.catch_up import end_of_master, settings
from bench.replicas.following import chase
from bench.replicas.group import group_of
from bench.settings import LoadSettings

RATE = 5_000
BYTES = 1 << 30
IN_SYNC_S_MAX, P99_RATIO_MAX = 30.0, 2.0
WARMUP_S = 2.0
SLICE_S = 1.0
REST_S = 5.0
"""Pause between writing and measuring: the machine writes back."""


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    live = LoadSettings(rate=RATE, durability="replicated", seconds=seconds, warmup_s=WARMUP_S)
    much = settings(int(BYTES * scale))
    with (
        instance.own("--replicas", "2") as both, group_of(both) as group,
        both.prepared(live) as target, both.prepared(much) as filler,
    ):  # fmt: skip
        group.wait_in_sync()
        settle(live, target)
        settle(much, filler)
        say("behind: in sync")
        in_sync = loaded(live, target)
        with group.without_slave() as go_on:
            fill(much, filler)
            time.sleep(REST_S * min(1.0, scale))
            say("behind: the slave is stopped")
            alone = loaded(live, target)
            slave, goal = group.slave, end_of_master(group)
            say("behind: the slave catches up")
            go_on()
            with chase(group, slave, goal) as copied:
                meanwhile = loaded(replace(live, seconds=SLICE_S, warmup_s=0.0), target)
                while not copied.is_over:
                    meanwhile.add(loaded(replace(live, seconds=SLICE_S, warmup_s=0.0), target))
    p99_ms = {name: each.percentile(0.99) / 1e6 for name, each in (("alone", alone), ("meanwhile", meanwhile))}
    return [
        Figure("behind", copied.behind_bytes / 1e6, "MB"),
        Figure("catch-up rate", copied.mb_per_s, "MB/s"),
        Figure("until it has what was missing", copied.caught_up_s, "s"),
        Figure("until it is in sync", copied.in_sync_s, "s", most=IN_SYNC_S_MAX),
        Figure("p99 with the slave in sync", in_sync.percentile(0.99) / 1e6, "ms"),
        Figure("p99 without it", p99_ms["alone"], "ms"),
        Figure("p99 while it catches up", p99_ms["meanwhile"], "ms"),
        Figure("the same, of that without it", p99_ms["meanwhile"] / p99_ms["alone"], "×", most=P99_RATIO_MAX),
        Figure("longest call while it catches up", meanwhile.max_ns / 1e6, "ms"),
    ]


def loaded(live: LoadSettings, target: LoadTarget) -> Any:
    """Run the load and return its histogram.

    Raises:
        RunError: a message was refused or could not be sent.
    """
    with on_one_core():
        result = run_load(live, target)
    if refused := sorted(set(result.counts["codes"]) - set(STORED)):
        raise RunError(f"answers with codes {refused} at {live.rate:,g}/s")
    return result.latency
