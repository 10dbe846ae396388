"""Which process has a broker's name, as a process that wants it knows."""

import pytest

from common.cluster.coordination import Registration
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
