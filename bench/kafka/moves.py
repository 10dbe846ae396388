"""Commands of moves: the fence of 100 topics (`fence`), and an inventory of 10,000 (`inventory`).

fence: a plan with the recipe mirror over 100 empty topics of 8 partitions; from the sub-step that fences to the end of the
one that lifts the fence by the new home, as the command shows them. inventory: the command's whole time, 10,000 topics of one partition.
Excluded: creating the topics. Both share the machine with the broker.
"""

import time
from collections.abc import Callable
from contextlib import closing

from bench.errors import InstanceError
from bench.figures import Figure
from bench.kafka.desk import CLUSTER, KafkaDesk, create_on, kafka_desk, wait_for
from common.kafka.drivers import open_driver

FENCED, LISTED, CREATED_AT_ONCE = 100, 10_000, 250
PARTITIONS = 8
PLAN_NAME = "many"
PLAN = "name: many\nrecipe: mirror\ncluster: {cluster}\ntopics: [{topics}]\nlimits: {{fence_s: 60, soak_hours: 0}}\n"
ACCEPTED = ("--accept", "lone-replica")


def run_fence(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    names = [f"fenced.{number:03d}" for number in range(int(FENCED * scale))]
    with kafka_desk() as desk:
        with closing(open_driver().admin(desk.connection)) as admin:
            create_on(admin, dict.fromkeys(names, PARTITIONS))
        plan = desk.data / "plan.yaml"
        plan.write_text(PLAN.format(cluster=CLUSTER, topics=", ".join(names)))
        wait_for(lambda: _is_planned(desk, str(plan)), "leaders of all partitions")
        for step in ("start", "verify"):
            began = time.monotonic()
            desk.command("migrate", step, PLAN_NAME)
            say(f"fence: {step} of {len(names)} topics: {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        told = desk.watched_command("migrate", "cut", PLAN_NAME)
        say(f"fence: cut of {len(names)} topics: {time.monotonic() - began:.1f} s")
        fenced_s = _time_of(told, "cut: followed") - _time_of(told, "cut: fence")
    return [Figure(f"fence of {len(names)} topics", fenced_s, "s", most=5.0)]


def run_inventory(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    count = int(LISTED * scale)
    with kafka_desk() as desk:
        names = [f"listed.{number:05d}" for number in range(count)]
        with closing(open_driver().admin(desk.connection)) as admin:
            for at in range(0, count, CREATED_AT_ONCE):
                create_on(admin, dict.fromkeys(names[at : at + CREATED_AT_ONCE], 1))
        say(f"inventory: {count:,} topics are there")
        began = time.monotonic()
        rows = desk.command("migrate", "inventory", CLUSTER)
        took_s = time.monotonic() - began
    if len(rows) < count:
        raise InstanceError(f"inventory: {len(rows):,} of {count:,} topics")
    return [Figure(f"inventory of {count:,} topics", took_s, "s", most=30.0)]


def _is_planned(desk: KafkaDesk, path: str) -> bool:
    """Whether the plan is stored: partitions that were just made may have no leader yet."""
    try:
        desk.command("migrate", "plan", path, *ACCEPTED)
    except InstanceError as error:
        if "NOT_LEADER" not in str(error):
            raise
        return False
    return True


def _time_of(told: list[tuple[float, str]], sub_step: str) -> float:
    """When a sub-step began."""
    found = [at_s for at_s, line in told if sub_step in line]
    if not found:
        raise InstanceError(f"the command has not shown {sub_step!r}: {[line for _, line in told]}")
    return found[0]
