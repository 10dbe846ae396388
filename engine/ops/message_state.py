"""The state of one message in one group, as its cursor has it now."""

from typing import Any

from engine.delivery.in_flight_range import NEVER, InFlightRange
from engine.delivery.queue_cursor import QueueCursor


def message_state(place: QueueCursor, offset: int, now_ms: int) -> dict[str, Any]:
    """The row's `message`: `state`, `attempts` (deliveries so far; left out where they are not known any more), `left_ms`.

    `lease` is the number of its lease, where that is known: receipts carry it, so a proxy knows which client got them.

    | state | meaning |
    |---|---|
    | undelivered | it was not given to a consumer yet |
    | settled | acknowledged, passed over by the filter, or below the position after a reset |
    | leased | a consumer has it; `left_ms` until the lease ends |
    | waiting | it waits for its next attempt, for `left_ms` |
    | due | its lease or wait is over: the next pull gets it |
    | held | it waits for an earlier message of its key |
    """
    found = next((each for each in place.in_flight.ranges if each.first <= offset < each.end), None)
    if found is None:
        is_early = any(first <= offset < end for first, end in place.early)
        return {"state": "settled" if offset < place.next_offset or is_early else "undelivered"}
    return _in_flight(found, now_ms)


def _in_flight(found: InFlightRange, now_ms: int) -> dict[str, Any]:
    if found.is_waiting:
        return {"state": "held", "attempts": found.attempt}
    if found.ready:
        return {"state": "due", "attempts": found.attempt}
    left = {} if found.due_ms == NEVER else {"left_ms": max(0, found.due_ms - now_ms)}
    lease = {"lease": found.lease} if found.lease and not found.is_restored else {}
    state = "leased" if found.lease and not found.is_withheld else "waiting"
    return {"state": state, "attempts": found.attempt, **left, **lease}
