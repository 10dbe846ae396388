"""Bounds and settings that several kinds have in common."""

from typing import Any

from common.config.setting import setting
from common.config.values import WholeNumber

RETENTION_MS_MAX = 10 * 366 * 86_400_000
RATE_MESSAGES_MAX = 1_000_000_000
RATE_BYTES_MAX = 1 << 50
GRADES = ("high", "normal", "low")
ORDERS = ("none", "key", "queue")
NO_LIMIT = "0: no limit"

_EACH_CLUSTER = "through all proxies together"


def rate_messages(verb: str, how: str = _EACH_CLUSTER, **rest: Any) -> int:
    """The setting that limits messages per second; `verb` names the limited action."""
    type_ = WholeNumber("messages/s", 0, RATE_MESSAGES_MAX)
    return setting(0, type_, f"{verb} at most this many messages per second {how}.", unset=NO_LIMIT, **rest)


def rate_bytes(verb: str, how: str = _EACH_CLUSTER, **rest: Any) -> int:
    """The setting that limits bytes of encoded messages per second."""
    type_ = WholeNumber("bytes/s", 0, RATE_BYTES_MAX)
    return setting(0, type_, f"{verb} at most this many bytes of messages per second {how}.", unset=NO_LIMIT, **rest)
