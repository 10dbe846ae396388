"""The wait before a comparison: the copies have what Kafka had when it began, so that all of it is judged."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from common.config.definitions import TopicDefinition
from common.config.text_values import ENGINE_HOME
from common.kafka.base import STABLE_END, ClusterAdmin, PartitionReader
from common.kafka.records import Partition
from migration.errors import PlanRefused
from migration.positions import CopiedTopic, EnginePositions
from migration.tails import CopyTails

STALL_S, LOOK_S = 30.0, 0.2


def wait_for_copies(
    kafka: ClusterAdmin, engine: EnginePositions, definitions: Sequence[TopicDefinition], to_ms: int | None,
    open_reader: Callable[[], PartitionReader], say: Callable[[str], object], stall_s: float = STALL_S,
) -> None:  # fmt: skip
    """Block until the copies of topics at home in Kafka have its committed records of now, or those before `to_ms`.

    Raises PlanRefused when a copy stands before a record that the engine cannot store, or gets no further for `stall_s`.
    Topics that proxies write to both sides, or that have moved, have no such copy.
    """
    topics = [
        CopiedTopic(each.name, each.made_ms, each.queues)
        for each in definitions
        if each.home != ENGINE_HOME and not each.secondary
    ]
    with closing(CopyTails(open_reader)) as tails:
        _wait(engine, topics, _ends(kafka, topics, to_ms), tails, say, stall_s)


def _wait(
    engine: EnginePositions, topics: Sequence[CopiedTopic], ends: dict[Partition, int], tails: CopyTails,
    say: Callable[[str], object], stall_s: float,
) -> None:  # fmt: skip
    before, since_s, is_told = -1, time.monotonic(), False
    while lacks := _lacking(engine, topics, ends, tails):
        total, now_s = sum(lacks.values()), time.monotonic()
        if total != before:
            before, since_s = total, now_s
        worst = max(lacks, key=lambda each: lacks[each])
        told = (
            f"the copies lack {total:,} records that Kafka had when the comparison began, most of them of {worst.topic} "
            f"partition {worst.number}"
        )
        if fault := next(filter(None, map(tails.fault_at, lacks)), ""):
            raise PlanRefused(f"{told}: {fault}")
        if now_s - since_s > stall_s:
            raise PlanRefused(f"{told}, and have stood for {stall_s:g} s: see `penstock migrate status`")
        if not is_told:
            say(f"{told}: waiting for them")
            is_told = True
        time.sleep(LOOK_S)


def _ends(kafka: ClusterAdmin, topics: Sequence[CopiedTopic], to_ms: int | None) -> dict[Partition, int]:
    found = kafka.topics([each.name for each in topics])
    partitions = [
        Partition(each.name, queue)
        for each in topics
        if each.name in found
        for queue in range(min(each.queues, found[each.name].partitions))
    ]
    stable = kafka.offsets(partitions, STABLE_END)
    asked = kafka.offsets(partitions, to_ms) if to_ms is not None else {}
    ends = {each: asked.get(each) for each in partitions}
    return {each: end if end is not None else stable[each] or 0 for each, end in ends.items()}


def _lacking(
    engine: EnginePositions, topics: Sequence[CopiedTopic], ends: dict[Partition, int], tails: CopyTails
) -> dict[Partition, int]:
    """Records that the copies lack, by partition; those without a copy are left out: the comparison refuses them."""
    rows = engine.copied(topics)
    places = {at: place for each in topics for at, place in engine.places(each, rows[each.name]).items()}
    copied = {
        each: min(rows[each.topic][each.number].next, end)
        for each, end in ends.items()
        if each.number < len(rows[each.topic]) and rows[each.topic][each.number].number
    }
    passed = tails.passed(copied, ends, places)
    return {each: ends[each] - at for each, at in passed.items() if at < ends[each]}
