"""Findings that are known and not mended yet. A finding leaves this list in the commit that mends it."""

import re
from typing import NamedTuple

from tests.sim.scenario import Scenario


class Known(NamedTuple):
    """One known defect.

    Attributes:
        pattern: of the broken promise.
        faults: kinds of faults, or operations of failing calls, of which the scenario has one; empty: any scenario.
        cause: the defect.
    """

    pattern: str
    faults: tuple[str, ...]
    cause: str


KNOWN: tuple[Known, ...] = ()


def cause_of(scenario: Scenario, broken: str) -> str:
    """The known defect that explains the finding; empty when it is new."""
    kinds = {fault.kind for fault in scenario.faults}
    for fault in scenario.faults:
        kinds.update(fault.options.get("operations", ()))
    for known in KNOWN:
        if re.search(known.pattern, broken) and (not known.faults or kinds & set(known.faults)):
            return known.cause
    return ""
