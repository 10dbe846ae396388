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
    "a lone master does not sync first": 200,
    "a master with a member that joins does not sync": 1100,
    "every start counts as complete": 300,
    "the set before is forgotten": 300,
}


def weight(step: str) -> float:
    """Faults are rare, or nothing ever comes into the set."""
    if any(fault in step for fault in ("silent", "suspects", "killed", "loses", "registration")):
        return 0.08
    return 0.7 if "controller" in step else 2.0 if "adopts" in step or "appends" in step else 1.0


def live(
    seed: int, names: str, must_sync: bool, left: tuple[int, int, int, int], mutant: str = ""
) -> tuple[World, list[str]]:
    """A life up to its first loss; with the steps that led there."""
    random, steps, taken = Random(seed), Steps(must_sync, mutant), []
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


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_one_of_the_rules_something_is(mutant):
    names, must_sync, left = GROUPS["two brokers, one power cut"]
    assert any(lost(live(seed, names, must_sync, left, mutant)[0]) for seed in range(MUTANTS[mutant]))
