"""Quotas of teams held against requests: at the preview, by the policy, and within the transaction of an approval."""

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from console.asking.disk_use import disk_use
from console.asking.team_quota import TeamQuota, TeamUse
from console.asking.topic_wish import TopicWish
from console.database.team_quotas import Holding, TeamQuotas
from console.database.user_requests import TOPIC, UserRequest
from console.errors import RequestConflict

RATE = "rate_messages"


class QuotaCheck:
    """
    Args:
        rate_of: the limit of a topic in messages/s, as the configuration has it now; None: there is no such topic.
    """

    def __init__(self, quotas: TeamQuotas, rate_of: Callable[[str], int | None]) -> None:
        self._quotas, self._rate_of = quotas, rate_of

    def _quota(self, team_id: int, within: Connection | None) -> TeamQuota:
        return TeamQuota(**self._quotas.of(team_id, within).value)

    def held(self, team_id: int, within: Connection | None = None, but: str = "") -> TeamUse:
        """Sums over the team's topics that exist now, without the topic `but`."""
        found = TeamUse()
        for each in self._quotas.holdings(team_id, within):
            if each.name != but:
                found = found.plus(self._use_of(each))
        return found

    def _use_of(self, each: Holding) -> TeamUse:
        rate = self._rate_of(each.name) if each.is_applied else each.settings.get(RATE, 0)
        return TeamUse() if rate is None else _use(TopicWish(**each.asked), rate)

    def excess_of_wish(self, team_id: int, wish: TopicWish, within: Connection | None = None) -> list[str]:
        """Sentences on bounds that a new topic would pass; empty: none, or the team has no quota."""
        quota = self._quota(team_id, within)
        if quota == TeamQuota():
            return []
        return quota.excess(self.held(team_id, within, wish.name), _use(wish, wish.settings()[RATE]))

    def excess(self, request: UserRequest, within: Connection | None = None) -> list[str]:
        """As `excess_of_wish`, of any request. One for consumption holds nothing that a quota counts."""
        if request.kind != TOPIC:
            return []
        if request.base_version is None:
            return self.excess_of_wish(request.team_id, TopicWish(**request.asked), within)
        quota = self._quota(request.team_id, within)
        more = _added(request.base or {}, request.settings)
        return quota.excess(self.held(request.team_id, within), more) if more != TeamUse() else []

    def at_approval(self, request: UserRequest, accepted: bool) -> Callable[[Connection], None] | None:
        """The check in the transaction of an approval; None: the operator accepts an excess. Raises RequestConflict."""
        return None if accepted else partial(self._refuse, request)

    def _refuse(self, request: UserRequest, connection: Connection) -> None:
        if found := self.excess(request, connection):
            raise RequestConflict(
                f"Nothing was changed. The team {request.team} would pass its quota: {' '.join(found)} "
                "Operators may approve it all the same, where the request's page shows this."
            )


def _use(wish: TopicWish, rate: int) -> TeamUse:
    return TeamUse(1, rate, disk_use(wish).day_bytes, 0 if rate else 1)


def _added(base: dict[str, Any], wanted: dict[str, Any]) -> TeamUse:
    """What a change of settings adds: messages only, because no setting says how much is sent per day."""
    was, to = base.get(RATE, 0), wanted.get(RATE, base.get(RATE, 0))
    if not to:
        return TeamUse(unlimited=1) if was else TeamUse()
    return TeamUse(messages=to - was) if to > was or not was else TeamUse()
