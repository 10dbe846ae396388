"""Findings of the group's simulator that are known and not mended yet: none at present."""

from collections.abc import Callable

from tests.sim.group.scenario import GroupScenario

KNOWN: dict[str, Callable[[GroupScenario, str], bool]] = {}
"""By cause: whether a broken promise of a scenario comes from it."""


def cause_of(scenario: GroupScenario, broken: str) -> str:
    """The known cause of a finding; empty: it is new."""
    return next((cause for cause, fits in KNOWN.items() if fits(scenario, broken)), "")
