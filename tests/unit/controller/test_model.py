"""Random lives of a replicated group: kills, power cuts, wrong suspicions, late reports and records. Nothing acknowledged may be lost."""

from random import Random

import pytest

from tests.unit.controller.model import Steps, World, group, lost

STEPS = 120
GROUPS = {
    "two brokers, one power cut": ("AB", False, (3, 1, 6, 9)),
    "three brokers, one power cut": ("ABC", False, (3, 1, 6, 9)),
    "two brokers that sync, power cuts of all": ("AB", True, (3, 3, 6, 9)),
    "three brokers that sync, power cuts of all": ("ABC", True, (3, 3, 6, 9)),
}
MUTANTS = {
    "a lone master does not sync first": 100,
    "a master with a member that joins does not sync": 1000,
    "every start counts as complete": 100,
    "the set before is forgotten": 100,
}
"""By rule that is left out: the first of 200 seeds. A life with the second one is rare."""

COURSES = {
    "slaves take any epoch": (
        "ABC",
        True,
        [
            "C reports", "B suspects", "the controller writes 'broker A is lost", "B adopts", "C copies from B", "B hears",
            "B acknowledges", "A appends", "C copies from A", "B is killed", "the link to B", "C suspects",
            "the controller writes 'broker B is lost", "C adopts",
        ],
    ),
    "a member that joins is not waited for": (
        "AB",
        False,
        [
            "A appends", "B copies from A", "A hears", "A reports (False", "B reports",
            "the controller writes 'broker B copies", "A adopts",
            "A reports (False", "the controller writes 'broker B is near", "A adopts", "A appends", "A syncs",
            "A acknowledges", "A reports (False", "the controller writes 'broker B has everything", "B adopts",
            "A is killed", "the link to A", "B suspects", "the controller writes 'broker A is lost", "B adopts",
        ],
    ),
}  # fmt: skip
"""Courses that are too rare for random lives: the brokers, whether all are in sync at first, and the beginning of each step's name."""


def weight(step: str) -> float:
    """Faults are rare, or nothing ever comes into the set."""
    if any(fault in step for fault in ("silent", "suspects", "killed", "loses", "registration")):
        return 0.08
    if "operator" in step:
        return 0.2
    return 0.7 if "controller" in step else 2.0 if "adopts" in step or "appends" in step else 1.0


def live(
    seed: int, names: str, must_sync: bool, left: tuple[int, int, int, int], mutant: str = "", switches: bool = False
) -> tuple[World, list[str]]:
    """A life up to its first loss; with the steps that led there."""
    random, steps, taken = Random(seed), Steps(must_sync, mutant, switches), []
    world = group(names, seed % 2 == 0, *left)
    for _ in range(STEPS):
        following = list(steps.following(world))
        if not following:
            break
        ((step, world),) = random.choices(following, [weight(step) for step, _ in following])
        taken.append(step)
        if lost(world):
            break
    return world, taken


@pytest.mark.parametrize("kind", GROUPS)
def test_nothing_that_was_acknowledged_is_lost(kind):
    names, must_sync, left = GROUPS[kind]
    confirmed = records = 0
    for seed in range(300):
        world, taken = live(seed, names, must_sync, left)
        assert not lost(world), (seed, taken)
        confirmed, records = confirmed + len(world.confirmed), records + len(world.records)
    assert confirmed > 300 * 4 and records > 300 * 4, "the lives are too quiet to show anything"


@pytest.mark.parametrize("kind", GROUPS)
def test_nor_when_an_operator_switches_at_any_time(kind):
    names, must_sync, left = GROUPS[kind]
    switched = confirmed = 0
    for seed in range(150):
        world, taken = live(seed, names, must_sync, left, switches=True)
        assert not lost(world), (seed, taken)
        switched += sum("operator" in step for step in taken)
        confirmed += len(world.confirmed)
    assert switched > 20 and confirmed > 150 * 3, "the lives are too quiet to show anything"


def test_a_switch_to_a_broker_that_is_not_in_sync_would_lose_something():
    names, must_sync, left = GROUPS["three brokers, one power cut"]
    assert any(lost(live(seed, names, must_sync, left, "a switch to any broker", True)[0]) for seed in range(200))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_one_of_the_rules_something_is(mutant):
    names, must_sync, left = GROUPS["two brokers, one power cut"]
    seeds = range(MUTANTS[mutant], MUTANTS[mutant] + 200)
    assert any(lost(live(seed, names, must_sync, left, mutant)[0]) for seed in seeds)


@pytest.mark.parametrize("mutant", COURSES)
def test_a_rare_course_loses_something_only_without_its_rule(mutant):
    names, are_in_sync, course = COURSES[mutant]
    begun = group(names, are_in_sync, 1, 0, 2, 5)
    world, left = played(begun, Steps(mutant=mutant), course)
    assert lost(world) and not left
    assert not lost(played(begun, Steps(), course)[0])


def played(world: World, steps: Steps, course: list[str]) -> tuple[World, list[str]]:
    """The world after the course, as far as its steps are possible, and those that are left."""
    for number, name in enumerate(course):
        found = next((after for step, after in steps.following(world) if step.startswith(name)), None)
        if found is None:
            return world, course[number:]
        world = found
    return world, []
