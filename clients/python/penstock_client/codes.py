"""The action for a result code, by its hundreds digit, so codes newer than this client work too."""

from enum import Enum

from penstock_client.contract import Code


class Action(Enum):
    DONE = 0  # stored
    REFUSED = 1  # the request is wrong: do not retry it unchanged
    LATER = 2  # not stored: retry after a pause
    UNKNOWN = 3  # may be stored: retry with the same id
    ELSEWHERE = 4  # not stored: retry at once, at another proxy
    NO_REPLY = 5  # stored, but the reply did not come


def action_of(code: int) -> Action:
    """The action for a code; an undefined hundreds digit is UNKNOWN, the safe choice."""
    try:
        return Action(code // 100)
    except ValueError:
        return Action.UNKNOWN


def name_of(code: int) -> str:
    return Code._VALUES_TO_NAMES.get(code, str(code))
