"""Checks the numbers of a pull against their ranges."""

from common.contract import Code
from consumer_proxy.call import Call
from consumer_proxy.errors import Refused
from consumer_proxy.settings import Settings


def check_request(call: Call, settings: Settings) -> None:
    """Check a pull. Raises Refused with the code and the field of the first broken rule."""
    if not 0 <= call.max_messages <= settings.messages_max:
        raise _outside("max_messages", 0, settings.messages_max)
    if not 1 <= call.max_bytes <= settings.bytes_max:
        raise _outside("max_bytes", 1, settings.bytes_max)
    if not 0 <= call.wait_ms <= settings.wait_ms_max:
        raise _outside("wait_ms", 0, settings.wait_ms_max)
    if call.invisible_ms != -1 and not settings.invisible_ms_min <= call.invisible_ms <= settings.invisible_ms_max:
        raise _outside("invisible_ms", settings.invisible_ms_min, settings.invisible_ms_max)


def _outside(field: str, low: int, high: int) -> Refused:
    return Refused(Code.INVALID, f"PullRequest.{field}: {low} to {high}")
