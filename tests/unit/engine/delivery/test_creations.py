"""Quotas of applications: groups without a definition and topics of families, counted where they come into being."""

import pytest

from engine.delivery.creations import GROUP, TOPIC, Creations
from engine.delivery.upkeep import IDLE_MS
from engine.errors import QuotaError
from tests.unit.engine.delivery._world import FORMS
from tests.unit.engine.delivery.test_upkeep import Kept


class Limits:
    """Three groups and two topics for each application; names that begin with "own" have an entry."""

    def most(self, kind, application):
        return {GROUP: 3, TOPIC: 2}[kind] if application != "unknown" else None

    def is_counted(self, kind, name):
        return not name.startswith("own")


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = Kept(request.param, wait_ms_max=10 * IDLE_MS)
    made.limits = Limits()
    made.restart()
    made.upkeep.step(made.now_ms)
    made.store(made.topic("own"), 100)
    return made


def give(world, group, application="shop", topics=(("own", 1),)):
    return world.give(group=group, application=application, topics=topics, invisible_ms=1)


def test_an_application_may_pull_under_so_many_names(world):
    for name in "abc":
        assert give(world, name)
    with pytest.raises(
        QuotaError, match='group "d": application shop has 3 groups without a definition, and may have 3'
    ):
        give(world, "d")
    assert "d" not in world.delivery.groups
    assert give(world, "a") and give(world, "own-d") and give(world, "d", application="other")


@pytest.mark.parametrize("application", ["", "unknown"])
def test_without_a_known_application_nothing_is_counted(world, application):
    for number in range(10):
        give(world, f"g{number}", application)
    assert list(world.log.progress(b"\0made")) == []


def test_the_count_outlives_a_restart_and_unloading(world):
    for name in "abc":
        give(world, name)
    world.rest(IDLE_MS)
    assert world.delivery.groups == {}
    world.restart()
    assert give(world, "a")
    with pytest.raises(QuotaError):
        give(world, "d")


def test_a_forgotten_group_makes_room(world):
    for name in "abc":
        give(world, name)
    world.rest(IDLE_MS)
    world.upkeep.forget("b")
    assert give(world, "d")
    with pytest.raises(QuotaError):
        give(world, "b")


def test_a_group_that_left_no_trace_makes_room(world):
    before = list(world.log.progress())
    for name in "abc":
        assert give(world, name, topics=(("own-empty", 1),)) == []
    world.rest(IDLE_MS)
    assert list(world.log.progress()) == before
    assert give(world, "d")


def test_a_group_that_gets_a_definition_makes_room(world):
    for name in "abc":
        give(world, name)
    world.rest(0)
    world.policies.set(attempts_max=2)  # a definition for every group
    world.run_hours(1)
    assert world.delivery.creations.count(GROUP, "shop") == 0
    assert list(world.log.progress(b"\0made")) == []


def test_acknowledgements_under_made_up_names_leave_nothing(world):
    (piece,) = give(world, "a")
    for number in range(10):
        codes, _ = world.pull(topics=(), acks=[piece.ack()], group=f"x{number}", most=0, application="shop")
        assert codes == [106]
    assert list(world.delivery.groups) == ["a"]


def test_pulls_create_so_many_topics_of_families(world):
    give(world, "a", topics=(("t1", 1), ("t2", 1), ("own-1", 1)))
    give(world, "a", topics=(("t1", 1), ("t2", 1)))
    with pytest.raises(
        QuotaError, match='topic "t3": application shop has created 2 topics of families, and may create 2'
    ):
        give(world, "a", topics=(("t2", 1), ("t3", 1)))
    assert world.log.topic("t3") is None
    assert world.delivery.creations.count(TOPIC, "shop") == 2


def test_a_refused_request_counts_nothing(world):
    creations = Creations(world.log, Limits())
    with pytest.raises(QuotaError):
        creations.admit(TOPIC, ["t1", "t2@5", "t3"], "shop")
    assert creations.count(TOPIC, "shop") == 0
    creations.admit(TOPIC, ["t1", "t1", "own-1"], "shop")
    assert creations.count(TOPIC, "shop") == 1
