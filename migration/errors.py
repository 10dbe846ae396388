"""Errors of plans.

StateConflict
├── PlanBusy         another operator has the plan
└── PlanRefused      the plan's state or the world forbids it. The sentence says why, with numbers
    └── PlanConflict     another process has written the plan's state
"""

from common.admin.errors import StateConflict


class PlanBusy(StateConflict):
    """Another process has claimed the plan; the sentence names operator, host and time."""


class PlanRefused(StateConflict):
    """A command cannot begin, or was given up. The plan can be resumed or left from where it is."""


class PlanConflict(PlanRefused):
    """Another process has written the plan's state: it alone knows how to go on."""
