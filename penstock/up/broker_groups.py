"""How many broker groups a data directory has, and telling the configuration where they are."""

from pathlib import Path

from common.admin import broker_groups
from common.config import open_store
from common.placement import GROUPS_MAX
from penstock.up.errors import UpError
from penstock.up.plan import UpPlan, group_name
from penstock.up.ports import engine_name


def settle(data: Path, asked: int | None) -> int:
    """The number of groups to run; their directories are there then, by which the next start knows it.

    Raises:
        UpError: the directory holds messages of another number of groups. Their queues would be looked for elsewhere.
    """
    present = max([number for number in range(1, GROUPS_MAX + 1) if is_used(data, number)], default=0)
    if asked is not None and present and asked != present:
        raise UpError(
            f"{data} has {present} broker group{'s' * (present > 1)}, not {asked}: adding or removing groups that hold "
            "messages is not part of this version"
        )
    groups = asked or present or 1
    for number in range(groups, 1, -1):  # the last one first: a crash in between must not look like fewer
        (data / engine_name(number)).mkdir(exist_ok=True)
    return groups


def is_used(data: Path, number: int) -> bool:
    """The first one's directory is there before it is decided how many there are."""
    directory = data / engine_name(number)
    return (directory / "log").is_dir() if number == 1 else directory.is_dir()


def publish(plan: UpPlan) -> None:
    """Write the groups and their addresses into the configuration; none where there is only one, which the proxies are told.

    Raises:
        UpError: the configuration names other groups, of another cluster perhaps.
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
                f"the configuration names broker groups of others ({', '.join(others)}): take another --config"
            )
        broker_groups.put(store, wanted)
    finally:
        store.close()
