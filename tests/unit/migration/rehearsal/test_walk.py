"""The commands of a rehearsal, and the kills that a seed draws."""

import pytest

from migration.plan import RECIPES
from migration.recipes.registry import courses_of
from migration.rehearsal.walk import AGAIN, FIRST, KILLS_MAX, VICTIMS, walk_of


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_command_may_begin_where_the_one_before_it_ends(recipe):
    step = "planned"
    for each in walk_of(recipe, seed=1, kills=0):
        assert step in courses_of(recipe)[each.name].begins
        step = each.to
    assert step == "retired"


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_seed_draws_the_same_kills_again_and_none_in_the_first_move(recipe):
    drawn = {tuple(walk_of(recipe, seed, kills=3)) for seed in range(20)}
    assert len(drawn) > 10 and tuple(walk_of(recipe, 7, kills=3)) == tuple(walk_of(recipe, 7, kills=3))
    for walk in drawn:
        kills = [(number, each) for number, each in enumerate(walk) if each.kill is not None]
        assert len(kills) == 3 and min(number for number, _ in kills) >= len(FIRST)
        for _, each in kills:
            assert each.kill.sub_step in courses_of(recipe)[each.name].sub_steps and each.kill.victim in VICTIMS


def test_every_later_command_has_a_kill_when_so_many_are_asked_for():
    walk = walk_of("mirror", seed=1, kills=KILLS_MAX)
    assert [each.name for each in walk if each.kill is not None] == [*AGAIN]
