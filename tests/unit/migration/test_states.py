"""The state machine on values alone: which command may begin when, and what single sub-steps answer."""

from dataclasses import replace

import pytest

from migration.describe import rows, waits_for
from migration.facts import IN_ENGINE, IN_KAFKA, Facts, Rules, TopicFacts
from migration.plan import DOUBLE_WRITE, MIRROR, RECIPES, parse_plan
from migration.recipes.course import COMMANDS, UNFENCE, PlanStep
from migration.recipes.mirror import COURSES
from migration.recipes.registry import RECIPE_COURSES, courses_of
from migration.states import Do, PlanState, Refuse, Wait, Write, after, begin, compared
from migration.sub_steps.kafka_topics import OPEN_MS_MAX
from migration.sub_steps.registry import SUB_STEPS, decide

RULES = Rules("shop", 10, 3_600_000)
OWN = TopicFacts(mark="shop", home=IN_KAFKA, has_copy_in=True, kafka_ends=(5, 5), stable_ends=(5, 5), copied_in=(5, 5))


def facts(topic=OWN, **fields):
    return Facts({"orders": topic}, **fields)


def at(course, sub_step, **fields):
    return PlanState("shop", **{"course": course, "sub_step": sub_step, "attempt": 1} | fields)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("step", PlanStep)
def test_a_command_begins_at_its_steps_only_and_names_them_otherwise(command, step):
    moved = replace(OWN, home=IN_ENGINE, is_moved=True) if step in (PlanStep.CUT, PlanStep.SOAKING) else OWN
    begun = begin(PlanState("shop", step), command, facts(moved))
    if step in COURSES[command].begins:
        assert (begun.course, begun.sub_step) == (command, COURSES[command].sub_steps[0])
    else:
        assert isinstance(begun, Refuse) and f"it is {step}: {command} is possible when it is" in begun.sentence


def test_while_a_command_is_at_work_only_it_and_the_way_back_may_begin():
    state = at("cut", "quiet", step=PlanStep.VERIFIED)
    assert begin(state, "cut", facts()) is state
    assert "cut is at work (sub-step quiet): use resume, or abort" in begin(state, "verify", facts()).sentence
    assert begin(state, "abort", facts()).course == "abort"
    moved = facts(replace(OWN, home=IN_ENGINE, is_moved=True))
    assert begin(state, "rollback", moved).course == "rollback"
    assert "topics have moved to the engine: use rollback first" in begin(state, "abort", moved).sentence


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_a_course_per_command_and_every_sub_step_is_known(recipe):
    courses = RECIPE_COURSES[recipe]
    assert courses.keys() == {*COMMANDS, UNFENCE}
    assert {name for course in courses.values() for name in course.sub_steps} <= SUB_STEPS.keys()


def test_every_sub_step_is_of_a_course():
    used = {name for courses in RECIPE_COURSES.values() for course in courses.values() for name in course.sub_steps}
    assert used == SUB_STEPS.keys()


def test_a_stored_state_is_read_as_it_was():
    state = at("cut", "quiet", reason="r", quits="q", step=PlanStep.FENCED)
    assert PlanState.from_value("shop", state.to_value()) == state
    older = {**state.to_value(), "ends": {"orders": [1, 2]}}
    assert PlanState.from_value("shop", older).ends == {"orders": (1, 2)}
    with pytest.raises(ValueError, match="later"):
        PlanState.from_value("shop", {**state.to_value(), "step": "later"})


def test_the_lag_is_told_with_numbers_and_the_worst_topic():
    behind = facts(replace(OWN, copied_in=(1, 0)))
    assert decide(at("verify", "caught_up"), behind, replace(RULES, lag_messages=8)) == Wait(
        "the copy lacks 9 records, at most 8 may be missing; orders lacks 9"
    )
    assert isinstance(decide(at("verify", "caught_up"), behind, RULES), Write)
    unknown = decide(at("verify", "caught_up"), facts(replace(OWN, copied_in=())), RULES)
    assert unknown == Wait("the copy of orders has not begun: is a Kafka bridge running?")


def test_a_rollback_waits_until_the_copy_back_is_near_before_it_fences():
    moved = replace(OWN, home=IN_ENGINE, is_moved=True, engine_ends=(30, 1), copied_out=(10, 1))
    assert decide(at("rollback", "gates"), facts(moved), RULES) == Wait(
        "the copy back lacks 20 messages, at most 10 may be missing"
    )
    assert decide(at("rollback", "gates"), facts(replace(moved, copied_out=(25, 1))), RULES).state.sub_step == "fence"


def test_records_of_open_transactions_do_not_count_for_the_lag_and_stop_the_cut():
    hanging = facts(replace(OWN, fence="shop.1", kafka_ends=(9, 5), stable_ends=(5, 5)))
    assert isinstance(decide(at("verify", "caught_up"), hanging, replace(RULES, lag_messages=0)), Write)
    told = "orders partition 0: a transaction is open since offset 5, 4 offsets before the end"
    waiting = decide(at("cut", "sources"), hanging, RULES)
    assert isinstance(waiting, Wait) and waiting.sentence.startswith(told), "it may end at once"
    for given_up in (
        decide(at("cut", "sources"), replace(hanging, waited_ms=OPEN_MS_MAX), RULES),
        decide(at("cut", "drained", ends={"orders": (9, 5)}), hanging, RULES),
    ):
        assert given_up.state.course == UNFENCE and given_up.state.reason.startswith(told)


def test_a_source_that_was_replaced_is_refused_unless_it_is_accepted():
    doubtful = facts(replace(OWN, faults=("queue 0: accepted twice",)))
    given_up = decide(at("verify", "caught_up"), doubtful, RULES)
    told = "orders: queue 0: accepted twice: compare both sides, then use --accept source to go on"
    assert (given_up.state.course, given_up.state.reason) == (UNFENCE, told)
    accepted = replace(RULES, accepted=frozenset(["source"]))
    assert decide(at("verify", "caught_up"), doubtful, accepted).state.sub_step == "tails"


def test_after_its_fence_a_course_is_given_up_as_soon_as_the_fence_is_gone():
    for sub_step in (name for name, each in SUB_STEPS.items() if each.is_guarded):
        given_up = decide(at("cut", sub_step, step=PlanStep.VERIFIED), facts(), RULES)
        assert given_up.state.course == UNFENCE and "the fence of orders has ended" in given_up.state.reason


def test_what_is_waited_for_behind_a_fence_ends_with_the_fences_time_although_no_message_has_met_the_fence():
    unsent = facts(replace(OWN, fence="shop.1"), unsent=("p",), waited_ms=RULES.fence_ms - 1)
    assert isinstance(decide(at("cut", "sent"), unsent, RULES), Wait)
    given_up = decide(at("cut", "sent"), replace(unsent, waited_ms=RULES.fence_ms), RULES)
    told = "sends of before the fence have no outcome yet at p 60 s behind the fence: nothing was lost, begin again"
    assert (given_up.state.course, given_up.state.reason) == (UNFENCE, told)


def test_a_fence_that_has_ended_leads_from_fenced_back_to_verified():
    state = PlanState("shop", PlanStep.FENCED, UNFENCE, "lift", reason="r", quits="cut")
    assert decide(state, facts(replace(OWN, fence="shop.1")), RULES) == Do("lift", ("orders",))
    assert after(state).step is PlanStep.VERIFIED and after(state).reason == "r"


def test_a_switch_waits_for_the_quiet_time_and_for_every_outcome():
    fenced = replace(OWN, fence="shop.1")
    assert "no outcome yet at p" in decide(at("cut", "sent"), facts(fenced, unsent=("p",)), RULES).sentence
    state = decide(at("cut", "sent"), facts(fenced), RULES).state
    assert (state.sub_step, state.ends) == ("quiet", {"orders": (5, 5)})
    assert decide(state, facts(fenced, quiet_ms=200), RULES) == Wait("the ends have to be still for 500 ms")
    assert decide(state, facts(fenced, quiet_ms=500), RULES).state.sub_step == "drained"
    grown = decide(state, facts(replace(fenced, kafka_ends=(5, 8))), RULES)
    assert "orders partition 1 grew by 3 records behind the fence" in grown.state.reason


def test_the_end_of_a_soak_is_refused_before_its_time():
    moved = replace(OWN, home=IN_ENGINE, is_moved=True)
    refused = decide(at("retire", "soaked"), facts(moved, soaked_ms=1_800_000), RULES)
    assert "the plan's time of soaking ends in 0.5 hours" in refused.state.reason


def test_a_dry_run_has_a_row_per_sub_step_with_the_plans_numbers_and_the_way_back():
    plan = parse_plan("name: shop\nrecipe: mirror\ncluster: main\ntopics: [a, b]\nlimits: {fence_s: 7}\n", "plan")
    told = {each["sub_step"]: each for each in rows(plan, "cut")}
    assert [*told] == [*COURSES["cut"].sub_steps]
    assert told["fence"]["does"] == "fences 2 topics: senders get FENCED, or BUFFERED, for 7 s at most"
    assert (told["drained"]["undo"], told["switch"]["undo"]) == ("lifts the fence by itself", "rollback")


def test_a_status_says_what_is_next_and_whether_a_process_is_at_work():
    assert waits_for(PlanState("shop"), facts(), RULES, False) == "an operator: start is next"
    assert waits_for(PlanState("shop", PlanStep.RETIRED), facts(), RULES, False) == "nothing: it has ended"
    told = waits_for(at("start", "applied"), facts(late=("engine@x",)), RULES, False)
    assert told == "not applied yet by engine@x (no process is at work: use resume)"
    assert waits_for(at("start", "applied"), facts(late=("engine@x",)), RULES, True) == "not applied yet by engine@x"


@pytest.mark.parametrize("recipe", [MIRROR, DOUBLE_WRITE])
def test_a_copy_is_verified_by_a_comparison_and_by_no_course(recipe):
    course = courses_of(recipe)["verify"]
    state = replace(at("verify", course.sub_steps[-1], step=PlanStep.COPYING), recipe=recipe)
    assert compared(state, 0) is state, "its course is at work"
    state = after(state)
    assert (state.course, state.step) == ("", PlanStep.COPYING)
    assert compared(state, 0, is_current=False).step is PlanStep.COPYING
    assert compared(state, 0).step is PlanStep.VERIFIED
    assert compared(replace(state, step=PlanStep.VERIFIED), 1).step is PlanStep.COPYING
    assert {compared(replace(state, step=step), 1).step for step in (PlanStep.CUT, PlanStep.SOAKING)} == {
        PlanStep.CUT, PlanStep.SOAKING,
    }  # fmt: skip
