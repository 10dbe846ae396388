"""Plans in the configuration store: one operator, one plan per topic, nothing lost by a race."""

from dataclasses import replace

import pytest

from common.clock import FakeClock
from common.config.errors import EntryNotFound, VersionConflict
from common.config.memory_store import MemoryConfigStore
from migration.entries import KIND, PlanStore, marks, remove_mark, set_mark
from migration.errors import PlanBusy, PlanRefused
from migration.plan import TOPICS_MAX, parse_plan
from migration.recipes.course import PlanStep
from migration.states import PlanState

PLAN = parse_plan("name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\n", "plan")


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def plans(store):
    made = PlanStore(store, FakeClock(), "cli:ann@desk")
    made.add(PLAN)
    return made


def test_a_plan_is_read_as_it_was_stored(plans):
    entry = plans.read("shop")
    assert (entry.plan, entry.state) == (PLAN, PlanState("shop"))
    assert [each.what for each in entry.history] == [f"plan {PLAN.digest} stored"]
    with pytest.raises(EntryNotFound, match='plan "other": not found'):
        plans.read("other")


def test_a_second_operator_is_refused_with_name_host_and_time_of_the_first(plans, store):
    other = PlanStore(store.peer(), FakeClock(), "cli:bob@desk")
    with (
        plans.at_work("shop"),
        pytest.raises(PlanBusy, match=r'plan "shop": ann@desk on .*, pid \d+ is at work since 2023-11-14T'),
    ):
        other.at_work("shop").__enter__()
    with other.at_work("shop") as entry:
        assert entry.operator.startswith("bob@desk on ")


def test_a_state_is_written_only_in_place_of_the_one_that_was_read(plans):
    entry = plans.read("shop")
    plans.write(entry, PlanState("shop", PlanStep.COPYING), "now copying")
    with pytest.raises(VersionConflict):
        plans.write(entry, PlanState("shop", PlanStep.RETIRED))
    assert plans.read("shop").state.step is PlanStep.COPYING


def test_a_plan_is_replaced_before_it_begins_and_after_it_has_ended_and_never_between(plans):
    later = parse_plan(PLAN.text + "# later\n", "plan")
    assert plans.add(later).plan.digest == later.digest
    entry = plans.write(plans.read("shop"), PlanState("shop", PlanStep.CUT, attempt=4))
    with pytest.raises(PlanRefused, match="it is cut: use another name, or end it first"):
        plans.add(PLAN)
    plans.write(entry, PlanState("shop", PlanStep.RETIRED, attempt=4))
    assert plans.add(PLAN).state == PlanState("shop", attempt=4), "fences of a plan never have an id twice"


def test_a_plan_that_does_not_agree_with_its_digest_is_refused(plans, store):
    found = store.get(KIND, "shop")
    store.put(KIND, "shop", {**found.value, "digest": "0" * 16}, found.version)
    with pytest.raises(PlanRefused, match="its text does not agree with its digest"):
        plans.read("shop")
    store.put(KIND, "shop", {"text": "name: 5"}, store.get(KIND, "shop").version)
    with pytest.raises(Exception, match="name"):
        plans.read("shop")


LARGE = [f"payments.settlement.eu.t{number:04d}" for number in range(TOPICS_MAX)]


def test_the_largest_plan_has_room_for_its_state_and_history_at_each_step():
    """Its ends are beside it: a state that the store does not take would be found behind the fence."""
    store = MemoryConfigStore()
    plans = PlanStore(store, FakeClock(), "cli:ann@desk")
    plan = parse_plan(
        "name: big\nrecipe: mirror\ncluster: main\ntopics:\n" + "".join(f"- {n}\n" for n in LARGE), "plan"
    )
    entry = plans.add(plan)
    for name in LARGE:
        set_mark(store, name, "big")
    ends = {name: (10**15 + number,) * 24 for number, name in enumerate(LARGE)}
    state = PlanState("big", PlanStep.VERIFIED, "cut", "quiet", 7, ends)
    for number in range(40):
        entry = plans.write(entry, replace(state, reason="r" * 9_000), f"{number}: " + "w" * 9_000)
    found = plans.read("big")
    assert found.state.ends == ends and set(found.state.reason) == {"r"}
    assert [each.what.partition(":")[0] for each in found.history] == [str(n) for n in range(40)][-len(found.history) :]
    assert len(found.history) > 5 and marks(store, tuple(LARGE[:2])) == dict.fromkeys(LARGE[:2], "big")


def test_ends_of_another_fence_or_that_another_process_has_written_are_none(plans, store):
    state = PlanState("shop", PlanStep.VERIFIED, "cut", "quiet", 1, {"orders": (4, 5)})
    plans.write(plans.read("shop"), state)
    assert plans.read("shop").state.ends == {"orders": (4, 5)}
    found = store.get("migration_topic", "orders")
    for other in ({"ends": [4, 6]}, {"fence": "shop.2"}):
        store.put("migration_topic", "orders", {**found.value, **other}, store.get("migration_topic", "orders").version)
        assert plans.read("shop").state.ends == {}
    plans.write(plans.read("shop"), replace(state, course="", sub_step="", ends={}))
    assert plans.read("shop").state.ends == {}


def test_a_plan_that_an_older_version_was_fencing_goes_on_with_its_ends(plans, store):
    value = plans.write(plans.read("shop"), PlanState("shop", PlanStep.VERIFIED, "cut", "quiet", 1)).to_value()
    older = {name: each for name, each in value.items() if name != "ends"}
    older["state"] = {**older["state"], "ends": {"orders": [4, 5]}}
    store.put(KIND, "shop", older, store.get(KIND, "shop").version)
    with plans.at_work("shop") as entry:
        assert entry.state.ends == {"orders": (4, 5)}
        entry = plans.write(entry, replace(entry.state, sub_step="drained"))
    assert plans.read("shop").state == entry.state


def test_a_topic_is_in_one_plan_at_most(store):
    set_mark(store, "orders", "shop")
    set_mark(store, "orders", "other")
    assert marks(store, ("orders", "pay")) == {"orders": "shop"}
    remove_mark(store, "orders", "other")
    assert marks(store, ("orders",)) == {"orders": "shop"}
    remove_mark(store, "orders", "shop")
    assert marks(store, ("orders",)) == {}
