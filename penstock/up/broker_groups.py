"""Broker groups of a data directory: their number, and their addresses in the configuration."""

from pathlib import Path

from common.admin import broker_groups
from common.config import open_store
from common.placement import GROUPS_MAX
from penstock.up.errors import UpError
from penstock.up.plan import UpPlan, group_name
from penstock.up.ports import engine_name


def settle(data: Path, asked: int | None) -> int:
    """Return the number of groups to run and create their directories, by which the next start knows it.

    Raises:
        UpError: the directory holds messages of another number of groups, whose queues would be looked up in other
            groups.
    """
    present = max([number for number in range(1, GROUPS_MAX + 1) if is_used(data, number)], default=0)
    if asked is not None and present and asked != present:
        raise UpError(
            f"--groups {asked}: {data} has {present} broker group{'s' * (present > 1)}, whose number cannot change: "
            f"use --groups {present} or a new data directory"
        )
    groups = asked or present or 1
    for number in range(
        groups, 1, -1
    ):  # the last one first: after a crash in between, the number must not look smaller
        (data / engine_name(number)).mkdir(exist_ok=True)
    return groups


def is_used(data: Path, number: int) -> bool:
    """Whether the group's directory is in use. The first one exists before the number is decided, so its log counts."""
    directory = data / engine_name(number)
    return (directory / "log").is_dir() if number == 1 else directory.is_dir()


def publish(plan: UpPlan) -> None:
    """Write the groups' addresses into the configuration. A single group is not written: the proxies get its address.

    Raises:
        UpError: the configuration names other groups, perhaps of another cluster.
    """
    if plan.groups == 1:
        return
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    numbers = range(1, plan.groups + 1)
    wanted = {group_name(number): f"{host}:{plan.ports[engine_name(number)]}" for number in numbers}
    store = open_store(plan.config)
    try:
        others = [group.name for group in broker_groups.list_groups(store) if group.name not in wanted]
        if others:
            raise UpError(
                f"configuration {plan.config}: it names other broker groups ({', '.join(others)}): use another --config"
            )
        broker_groups.put(store, wanted)
    finally:
        store.close()
