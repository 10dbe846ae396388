"""The gate on the error rate: its numbers over all proxies, what it refuses, and what stays possible."""

from dataclasses import replace

import pytest

from common.config.memory_store import MemoryConfigStore
from common.config.process_report import OPS_PORT
from common.ops.send_pages import TopicSendCounts
from migration import send_errors
from migration.errors import PlanRefused
from migration.facts import Facts, Rules, SendErrors
from migration.recipes.course import PlanStep
from migration.recipes.registry import RECIPE_COURSES
from migration.send_errors import read_send_errors
from migration.states import PlanState
from migration.sub_steps.registry import GATES, decide
from tests.unit.migration.test_states import OWN
from tests.unit.migration.world import World

RULES = Rules("shop", 10, 3_600_000, error_rate=0.01)
STATE = PlanState("shop", PlanStep.VERIFIED, "cut", "error_rate")


def answer(errors, rules=RULES):
    """The reason of a refusal; empty: the next sub-step begins."""
    return decide(STATE, Facts({"orders": OWN}, errors=errors), rules).state.reason


def test_a_cut_is_refused_with_the_numbers_of_each_topic_above_the_bound():
    counts = {
        "orders": TopicSendCounts(9_800, 200),
        "pay": TopicSendCounts(1, 3),
        "quiet": TopicSendCounts(990, 10),
        "idle": TopicSendCounts(0, 0),
    }
    assert answer(SendErrors(counts)) == (
        "3 of 4 sends to pay (75 %), 200 of 10,000 sends to orders (2 %) have failed in the last 5 minutes, at most 1 % "
        "may: find out why (/readyz of the proxies), wait until they are older, or use --accept error-rate"
    )


def test_at_the_bound_and_with_nothing_sent_the_gate_is_passed():
    assert answer(SendErrors({"orders": TopicSendCounts(99, 1)})) == answer(SendErrors()) == ""
    assert answer(SendErrors({"orders": TopicSendCounts(999_999, 1)}), replace(RULES, error_rate=0.0)).startswith(
        "1 of 1,000,000"
    )


def test_a_rate_that_is_not_known_refuses_and_names_the_proxy():
    assert answer(SendErrors(silent=("producer_proxy@a:1/vm (its page …)",))) == (
        "the error rate is not known of producer_proxy@a:1/vm (its page …): let this machine reach the page, or use "
        "--accept error-rate"
    )


def test_an_operator_may_accept_it_and_a_plan_may_have_no_bound():
    bad = SendErrors({"orders": TopicSendCounts(0, 5)}, ("producer_proxy@a:1/vm",))
    assert "error-rate" in GATES
    assert (
        answer(bad, replace(RULES, accepted=frozenset(["error-rate"])))
        == answer(bad, replace(RULES, error_rate=1.0))
        == ""
    )


@pytest.mark.parametrize("recipe", RECIPE_COURSES)
def test_it_stands_before_a_fence_a_cut_and_the_end_of_the_way_back_and_never_before_a_way_back(recipe):
    gated = {name for name, course in RECIPE_COURSES[recipe].items() if "error_rate" in course.sub_steps}
    assert gated == {"fence", "cut", "retire"}
    for name in ("fence", "cut"):
        steps = RECIPE_COURSES[recipe][name].sub_steps
        assert steps.index("error_rate") < steps.index("fence")


def test_a_plan_is_not_cut_while_sends_fail_and_is_cut_when_they_do_no_more():
    world = World()
    world.add_plan()
    for command in ("start", "verify"):
        world.run().run(command)
    world.send_errors = SendErrors({"pay": TopicSendCounts(50, 50)})
    with pytest.raises(PlanRefused, match="50 of 100 sends to pay"):
        world.run().run("cut")
    assert world.state.step is PlanStep.VERIFIED and {world.home(name) for name in world.plan.topic_names} == {
        "kafka:main"
    }
    world.send_errors = SendErrors({"pay": TopicSendCounts(5_000, 50)})
    world.run().run("cut")
    assert {world.home(name) for name in world.plan.topic_names} == {"engine"}


def test_the_outcomes_at_all_proxies_are_added_up_and_proxies_without_a_page_are_named(monkeypatch):
    pages = {
        7001: {"orders": TopicSendCounts(5, 1), "other": TopicSendCounts(9, 9)},
        7002: {"orders": TopicSendCounts(3, 2)},
    }

    def read(host, port):
        if port not in pages:
            raise OSError("connection refused")
        return pages[port]

    monkeypatch.setattr(send_errors, "read_sends", read)
    store = MemoryConfigStore()
    for number in (1, 2, 3):
        store.report_applied(f"producer_proxy@10.0.0.{number}:9700/elsewhere", {OPS_PORT: 7000 + number})
    store.report_applied("producer_proxy@10.0.0.4:9700/elsewhere", {})
    store.report_applied("consumer_proxy@10.0.0.5:9700/elsewhere", {OPS_PORT: 7009})
    assert read_send_errors(store, ["orders", "pay"]) == SendErrors(
        {"orders": TopicSendCounts(8, 3)},
        (
            "producer_proxy@10.0.0.3:9700/elsewhere (its page at 10.0.0.3:7003: connection refused)",
            "producer_proxy@10.0.0.4:9700/elsewhere (it does not report where its pages are)",
        ),
    )
