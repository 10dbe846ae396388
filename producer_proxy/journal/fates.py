"""Fates of a message at a target, by the contract code that the target has answered."""

from enum import Enum, auto

from common.contract import Code


class Fate(Enum):
    """
    STORED: it is there. REFUSED: it is not, and never will be. AWAY: it is not, and may be sent again. UNKNOWN: it may be.
    """

    STORED = auto()
    REFUSED = auto()
    AWAY = auto()
    UNKNOWN = auto()


def fate_of(code: int) -> Fate:
    """By the code's hundreds, as the contract defines them; an unknown topic may be known a moment later."""
    if code in (Code.OK, Code.DUPLICATE):
        return Fate.STORED
    if code == Code.UNKNOWN_TOPIC or 200 <= code < 300:
        return Fate.AWAY
    return Fate.REFUSED if 100 <= code < 200 else Fate.UNKNOWN
