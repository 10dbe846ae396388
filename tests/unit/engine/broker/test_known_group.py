"""Which process has a broker's name, as a process that wants it knows."""

from dataclasses import replace

import pytest

from common.cluster.coordination import Registration, VersionedRecord
from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.memory_coordination import MemoryCoordination
from engine.broker.known_group import KnownGroup

GROUP, NAME = "main", "b"


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
def known(coordination):
    made = KnownGroup(GROUP, coordination, lambda: None)
    coordination.watch(GROUP, made.look)
    return made


def test_the_name_of_another_process_is_taken_until_that_has_ended(coordination, known):
    other = coordination.peer()
    other.register(GROUP, NAME, Registration(7, "10.0.0.2:9702"))
    known.register(NAME, 8, "10.0.0.3:9702")
    assert known.is_taken(NAME)
    other.close()
    assert not known.is_taken(NAME) and coordination.brokers(GROUP)[NAME].incarnation == 8


def test_a_name_is_not_taken_by_this_process_before_its_log_was_cut_nor_while_nobody_has_it(coordination, known):
    assert not known.is_taken(NAME)
    known.register(NAME, 8, "10.0.0.3:9702")
    coordination.set_available(False)
    known.register(NAME, 9, "10.0.0.3:9702")
    known.look(GROUP)
    assert not known.is_taken(NAME)
    coordination.set_available(True)
    assert not known.is_taken(NAME) and coordination.brokers(GROUP)[NAME].incarnation == 9


def test_an_older_record_in_the_coordination_is_no_contact_and_a_missing_one_is(coordination, known, monkeypatch):
    """It was put back from an older copy: another broker may have been made master since, or will be by the copy."""
    record = GroupRecord(1, GroupState.SINGLE_MASTER, NAME, {NAME: 8}, log_id="1f", reason="the first")
    coordination.write(GROUP, record, 0)
    known.learn(2, replace(record, epoch=2))  # of a controller, and on its way
    known.look(GROUP)
    assert not known.has_contact()
    coordination.write(GROUP, replace(record, epoch=2), 1)
    assert known.has_contact()
    for found, has_contact in ((VersionedRecord(record, 1), False), (None, True)):
        monkeypatch.setattr(coordination, "record", lambda group, found=found: found)
        known.look(GROUP)
        assert known.has_contact() is has_contact
