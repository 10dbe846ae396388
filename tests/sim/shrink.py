"""Shrinking: the smallest scenario that still breaks a promise of the same kind."""

from dataclasses import replace

from tests.sim.kinds import kind_of
from tests.sim.scenario import Scenario
from tests.sim.simulation import Outcome, simulate

TRIES_MAX = 200


def shrink(outcome: Outcome) -> Outcome:
    """Leave out faults and clients, and shorten the run, as long as it still fails."""
    tries = TRIES_MAX
    best = outcome
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(best.scenario):
            tries -= 1
            found = simulate(smaller)
            if kind_of(found.broken) == kind_of(outcome.broken):
                best, progress = found, True
                break
            if tries <= 0:
                break
    return best


def _smaller(scenario: Scenario) -> list[Scenario]:
    found = [scenario.without(fault) for fault in scenario.faults]
    found += [scenario.without(part) for part in scenario.parts if len(scenario.parts) > 1]
    latest = max((fault.at_ms + 200 for fault in scenario.faults), default=0)
    for length_ms in (scenario.length_ms // 2, scenario.length_ms * 3 // 4):
        if latest <= length_ms >= 300:
            found.append(replace(scenario, length_ms=length_ms))
    if scenario.staged:
        found.append(replace(scenario, staged=False))
    if scenario.threads:
        found.append(replace(scenario, threads=False))
    return found
