"""Waits, before a partition goes to another member of the group, until the group has acknowledged what was copied of it."""

import time
from collections.abc import Callable, Collection

from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.run import ENGINE_FAULTS

LOOK_S = 0.1
MARGIN_S = 1.0
"""The callback ends before its deadline, so that the library does not go on beside it."""
AT_END_S = 2.0
"""Longest wait of a bridge that stops: its supervisor kills it after four seconds."""


def wait_acknowledged(
    queues: EngineQueues, group: str, partitions: Collection[int], deadline_s: float, is_ended: Callable[[], bool]
) -> list[int]:
    """Wait for these queues of the hidden topic; returns those that the group has not acknowledged in time.

    Blocks for less than `deadline_s`, and for two seconds from the start on while the copier is to end. A queue whose
    engine does not answer counts as not acknowledged.
    """
    begun_s = time.monotonic()
    while left := _open_queues(queues, group, partitions):
        waited_s = time.monotonic() - begun_s
        if waited_s >= (AT_END_S if is_ended() else deadline_s - MARGIN_S):
            break
        time.sleep(LOOK_S)
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
