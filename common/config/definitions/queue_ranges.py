"""The ranges of a topic's queues in their stored form, and the change of a topic's broker groups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.config.checks import Checks
from common.names import is_name
from common.placement import QueueRange, Ranges

if TYPE_CHECKING:
    from common.config.definitions.topic import TopicDefinition

RANGES_MAX = 64
_RULE = "use ranges as [first queue, [broker group, …]] in the order of their queues, from queue 0 on"


def checked_ranges(checks: Checks, stored: Any) -> Ranges:
    """The ranges as they are stored; empty, with a fault, where they are wrong."""
    try:
        found = tuple(QueueRange(first, tuple(groups)) for first, groups in stored)
        firsts = [each.first for each in found]
        is_sound = all(type(first) is int for first in firsts) and firsts == sorted(set(firsts))
        is_named = all(isinstance(name, str) and is_name(name) for each in found for name in each.broker_groups)
    except (TypeError, ValueError):
        is_sound = is_named = False
        found, firsts = (), []
    if not (is_sound and is_named and len(found) <= RANGES_MAX and (not firsts or firsts[0] == 0)):
        checks.fault("placement", _RULE)
        return ()
    return found


def stored_ranges(ranges: Ranges) -> list[list[Any]]:
    """The ranges as JSON values."""
    return [[each.first, list(each.broker_groups)] for each in ranges]


def with_new_range(old: "TopicDefinition", value: Mapping[str, Any]) -> dict[str, Any]:
    """`value`, the topic's new form, with the queues that a change of its broker groups needs.

    As many queues as take messages now are added in the new groups, or more where `value` has more, and the others take
    no more messages.
    """
    wanted = tuple(value.get("broker_groups", ()))
    if set(wanted) == set(old.broker_groups):
        return {**value, "broker_groups": list(old.broker_groups)}
    ranges = (*(old.ranges or (QueueRange(0, ()),)), QueueRange(old.queues, wanted))
    queues = max(2 * old.queues - old.first_queue, value.get("queues", 0))
    return {**value, "queues": queues, "placement": stored_ranges(ranges)}
