"""What the courses of all recipes have in common."""

import pytest

from migration.plan import RECIPES
from migration.recipes.course import COMMANDS, UNFENCE, Aim
from migration.recipes.registry import courses_of
from migration.sub_steps.registry import SUB_STEPS


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_command_has_a_course_of_known_sub_steps(recipe):
    courses = courses_of(recipe)
    assert courses.keys() == {*COMMANDS, UNFENCE}
    assert not {name for course in courses.values() for name in course.sub_steps} - SUB_STEPS.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_cut_leads_to_the_engine_and_a_rollback_to_kafka(recipe):
    courses = courses_of(recipe)
    assert courses["cut"].aim in (Aim.TO_ENGINE, Aim.SWAP_TO_ENGINE)
    assert courses["rollback"].aim in (Aim.TO_KAFKA, Aim.SWAP_TO_KAFKA)


@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_is_switched_without_a_fence(recipe):
    for name, course in courses_of(recipe).items():
        if "switch" in course.sub_steps:
            fenced = course.sub_steps.index("fence"), course.sub_steps.index("switch")
            assert fenced[0] < fenced[1], name
