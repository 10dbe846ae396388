"""Broker groups of a data directory: their number, and their addresses in the configuration."""

from pathlib import Path

from common.admin import broker_groups
from common.config import open_store
from common.placement import GROUPS_MAX
from penstock.up.errors import OtherGroups
from penstock.up.plan import UpPlan
from penstock.up.ports import broker_name, engine_name, group_name

REPLICAS_MAX = 5


def settle(data: Path, asked: int | None) -> int:
    """Return the number of groups to run and create their directories, by which the next start knows it.

    Raises:
        OtherGroups: the directory holds messages of another number of groups, whose queues would be looked up in other
            groups.
    """
    present = max([number for number in range(1, GROUPS_MAX + 1) if is_used(data, number)], default=0)
    if asked is not None and present and asked != present:
        raise OtherGroups(
            f"--groups {asked}: {data} has {present} broker group{'s' * (present > 1)}, whose number cannot change: "
            f"use --groups {present} or a new data directory"
        )
    groups = asked or present or 1
    for number in range(
        groups, 1, -1
    ):  # the last one first: after a crash in between, the number must not look smaller
        (data / engine_name(number)).mkdir(exist_ok=True)
    return groups


def settle_replicas(data: Path, groups: int, asked: int | None) -> int:
    """Return the number of brokers per group, and create their directories. It may grow from one start to the next.

    Raises:
        OtherGroups: the directory has more: those that are left out may have messages that the others lack.
    """
    present = max([each for each in range(1, REPLICAS_MAX + 1) if (data / broker_name(1, each)).is_dir()], default=1)
    if asked is not None and asked < present:
        raise OtherGroups(
            f"--replicas {asked}: {data} has {present} replicas per group: use --replicas {present}, or remove the directories "
            "of brokers that are not the master while all are in sync"
        )
    replicas = asked or present
    for number in range(1, groups + 1):
        for each in range(1, replicas + 1):
            (data / broker_name(number, each)).mkdir(exist_ok=True)
    return replicas


def is_used(data: Path, number: int) -> bool:
    """Whether the group's directory is in use. The first one exists before the number is decided, so its log counts."""
    directory = data / engine_name(number)
    return (directory / "log").is_dir() if number == 1 else directory.is_dir()


def publish(plan: UpPlan) -> None:
    """Write the groups' addresses into the configuration. A single group is not written: the proxies get its address.

    Raises:
        OtherGroups: the configuration names other groups, perhaps of another cluster.
    """
    if plan.groups == 1:
        return
    host = f"[{plan.hosts.engines}]" if ":" in plan.hosts.engines else plan.hosts.engines
    numbers = range(1, plan.groups + 1)
    copies = range(1, plan.replicas + 1)
    wanted = {
        group_name(number): ",".join(f"{host}:{plan.ports[broker_name(number, each)]}" for each in copies)
        for number in numbers
    }
    store = open_store(plan.config)
    try:
        others = [group.name for group in broker_groups.list_groups(store) if group.name not in wanted]
        if others:
            raise OtherGroups(
                f"configuration {plan.config}: it names other broker groups ({', '.join(others)}): use another --config"
            )
        broker_groups.put(store, wanted)
    finally:
        store.close()
