"""Members of a group that are left when its master is away: with a file store, where the session of a hung process never ends."""

import signal

import pytest

from tests.fault.replicated_group import GROUP, ReplicatedGroup
from tests.waiting import until

CHANGES = {
    "killed": lambda group, name: group.kill(name),
    "hung": lambda group, name: group.kill(name, signal.SIGSTOP),
    "planned": lambda group, name: group.switch(),
}


def group_of(folder, *brokers):
    return ReplicatedGroup(folder / "group", f"file://{folder}/config", brokers=brokers)


@pytest.fixture
def group(tmp_path, request):
    with group_of(tmp_path, *getattr(request, "param", "ab")) as made:
        yield made


@pytest.mark.parametrize("group", ["abc"], indirect=True, ids=["three"])
@pytest.mark.parametrize("change", CHANGES)
def test_both_slaves_stay_in_the_set_when_one_of_them_becomes_master(group, load, change):
    load.wait_more(500)
    version, old = group.version, group.master
    CHANGES[change](group, old)
    try:
        group.wait_master_other_than(old)
        load.wait_more(500)
        changes = [each.record for each in group.coordination.history(GROUP) if each.version > version]
        left = {"a", "b", "c"} - {old}
        assert all(left <= record.in_sync.keys() for record in changes), group.logs()
    finally:
        group.kill(old, signal.SIGCONT) if change != "killed" else group.restart(old)
    group.wait_in_sync()
    load.finish().assert_clean()


@pytest.mark.parametrize("stays", ["master", "slave"])
def test_a_member_that_restarts_while_the_other_hangs_leads_with_its_log(group, load, stays):
    load.wait_more(500)
    master, slave = group.master, group.slave
    hung, restarted = (master, slave) if stays == "master" else (slave, master)
    group.kill(hung, signal.SIGSTOP)
    try:
        group.restart(restarted)
        until(lambda: group.record.in_sync.keys() == {restarted}, "the one that has restarted is the master", 10)
        load.wait_more(500)
        assert group.master == restarted
    finally:
        group.kill(hung, signal.SIGCONT)
    group.wait_in_sync()
    load.finish().assert_clean()
