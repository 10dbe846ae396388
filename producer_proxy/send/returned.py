"""Messages that come back with an id that a proxy assigned, after a TIMEOUT: a stored copy makes them a DUPLICATE."""

from collections.abc import Callable, Sequence

from common.contract import Code
from common.ids import assigned_at_ms
from producer_proxy.send.pending import PendingMessage, open_ones
from producer_proxy.targets.base import SendTarget

EARLY_MS = 86_400_000
"""An id may be from a proxy whose clock is ahead by so much, or was. Random ids of other makers are hardly ever so near."""


class ReturnedMessages:
    """Finds the copies of one call's messages. Other messages are not looked at twice."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def answer(self, resolved: Sequence[PendingMessage], deadline_s: float) -> Sequence[PendingMessage]:
        """Give DUPLICATE to messages that are stored, TIMEOUT when that cannot be found out; returns the others.

        Blocks for the targets when there is a message that came back.
        """
        returned = [each for each in resolved if self._is_returned(each)]
        if not returned:
            return resolved
        by_target: dict[SendTarget, list[PendingMessage]] = {}
        for each in returned:
            assert each.route is not None
            by_target.setdefault(each.route.target, []).append(each)
        for target, members in by_target.items():
            shown = [each.message.id or "" for each in members]
            outcomes = target.first_copies([each.slice for each in members], shown, deadline_s)
            for each, outcome in zip(members, outcomes, strict=True):
                if outcome[0] != Code.OK:
                    each.settle(*outcome)
        return open_ones(resolved)

    def _is_returned(self, pending: PendingMessage) -> bool:
        assert pending.route is not None
        window_ms = getattr(pending.route.destination, "id_window_ms", 0)
        if pending.message.id is None or not window_ms:
            return False
        at_ms = assigned_at_ms(pending.message.id)
        return at_ms is not None and -EARLY_MS <= self._now_ms() - at_ms <= window_ms
