"""Which answers to appends wait for which disks."""

import pytest

from engine.link.layout import FSYNC, MEMORY, REPLICATED, REPLICATED_FSYNC
from engine.ops.stored import StoredWaits


class Disk:
    """Callbacks that wait, by position."""

    def __init__(self):
        self.waiting = []

    def when_durable(self, position, callback):
        self.waiting.append((position, callback))

    def synced(self, position):
        for each in [each for each in self.waiting if each[0] <= position]:
            self.waiting.remove(each)
            each[1]()


@pytest.fixture
def disks():
    return Disk(), Disk()


@pytest.fixture
def waits(disks):
    made = StoredWaits(disks[0])
    made.when_everywhere = disks[1].when_durable
    return made


def test_only_memory_waits_for_no_disk_while_a_broker_is_alone(waits):
    assert [waits.waits(each) for each in (MEMORY, FSYNC, REPLICATED, REPLICATED_FSYNC)] == [False, True, True, True]


def test_with_members_in_sync_a_replicated_append_waits_for_no_disk(waits):
    waits.is_replicated = True
    assert [waits.waits(each) for each in (MEMORY, FSYNC, REPLICATED, REPLICATED_FSYNC)] == [False, True, False, True]


def test_an_append_for_all_disks_waits_for_the_others_and_later_ones_wait_behind_it(waits, disks):
    own, everywhere = disks
    told = []
    waits.when(10, lambda: told.append("first"), False)
    waits.when(20, lambda: told.append("everywhere"), True)
    waits.when(30, lambda: told.append("behind"), False)
    own.synced(30)
    assert told == ["first"]
    everywhere.synced(20)
    assert told == ["first", "everywhere"]
    everywhere.synced(30)
    assert told[-1] == "behind"
    waits.when(40, lambda: told.append("own again"), False)
    own.synced(40)
    assert told[-1] == "own again"


def test_without_other_members_its_own_disk_is_everywhere(disks):
    waits, told = StoredWaits(disks[0]), []
    waits.when(10, lambda: told.append(1), True)
    disks[0].synced(10)
    assert told == [1]
