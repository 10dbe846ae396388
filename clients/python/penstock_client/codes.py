"""What to do about a result code: its hundreds digit says it, so codes that are newer than this client work too."""

from enum import Enum

from penstock_client.contract import Code


class Action(Enum):
    DONE = 0  # stored
    REFUSED = 1  # the request is wrong: the same again will not help
    LATER = 2  # not stored: again after a pause
    UNKNOWN = 3  # may be stored: again with the same id
    ELSEWHERE = 4  # not stored: again at once, at another proxy
    NO_REPLY = 5  # stored, but the reply that was waited for did not come


def action_of(code: int) -> Action:
    """The action for a code; a hundreds digit that nobody has defined yet is UNKNOWN, the careful reading."""
    try:
        return Action(code // 100)
    except ValueError:
        return Action.UNKNOWN


def name_of(code: int) -> str:
    return Code._VALUES_TO_NAMES.get(code, str(code))
