"""Waits, before a partition goes to another member of the group, until the group has acknowledged what was copied of it."""

import time
from collections.abc import Callable, Collection, Sequence

from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.run import ENGINE_FAULTS

LOOK_S = 0.1
MARGIN_S = 1.0
"""The callback ends before its deadline, so that the library does not go on beside it."""
AT_END_S = 2.0
"""Longest wait of a bridge that stops: its supervisor kills it after four seconds."""


Given = tuple[EngineQueues, str, Collection[int]]
"""Queues of one hidden topic, the group, and the numbers of those that are given up."""


def wait_acknowledged(given: Sequence[Given], deadline_s: float, is_ended: Callable[[], bool]) -> list[list[int]]:
    """Wait for these queues; returns those that the group has not acknowledged in time, per entry.

    Blocks for less than `deadline_s`, and for two seconds from the start on while the copier is to end. A queue whose
    engine does not answer counts as not acknowledged.
    """
    begun_s = time.monotonic()
    left = [_open_queues(*each) for each in given]
    while any(left):
        waited_s = time.monotonic() - begun_s
        if waited_s >= (AT_END_S if is_ended() else deadline_s - MARGIN_S):
            break
        time.sleep(LOOK_S)
        left = [
            _open_queues(queues, group, numbers) if numbers else []
            for (queues, group, _), numbers in zip(given, left, strict=True)
        ]
    return left


def _open_queues(queues: EngineQueues, group: str, partitions: Collection[int]) -> list[int]:
    found = []
    for home, numbers in queues.by_group(partitions).items():
        try:
            backlog = queues.lags(home, group)
        except ENGINE_FAULTS:
            found += numbers
            continue
        found += [each for each in numbers if each < len(backlog) and backlog[each].messages]
    return sorted(found)
