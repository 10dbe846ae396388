"""Several broker groups as one source: questions are split by placement, answers joined.

docs/design/0009-placement-and-routing.md.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from common.placement import NONE_PLACED, PlacedTopics, topic_hash
from common.resting_timer import REST_S, RestingTimer
from common.stalls import Stalls
from consumer_proxy.sources.base import OnLent, OnPulled, OnRead, Source, SourceDown
from consumer_proxy.sources.engine import AWAY
from consumer_proxy.sources.group_link import GroupLink
from consumer_proxy.sources.joined import Joined, JoinedPull, JoinedRead
from engine.client.router import LOOK_S, Place, Router
from engine.link.acknowledgement import NO_ACKS, AckRanges, queue_of_range
from engine.link.operations import LEASE, PULL
from engine.link.pull import PullQuestion, PullScope, acknowledging
from engine.link.read import ReadQuestion

SCOPES_MAX = 10_000
"""Maximum remembered lists of topics with their groups."""

Connect = Callable[[str, int, Place, bytes, Callable[[GroupLink, bool], None]], GroupLink]


class GroupsSource(Source):
    """The broker groups that the configuration names; told by `follow`.

    Args:
        connect: makes a link: (name, number, address, cluster key, on_change).
        window: bytes of answers that may wait for clients; the links share them.
    """

    def __init__(self, cluster_key: bytes, connect: Connect = GroupLink, window: int = 0) -> None:
        self._window = window
        self._router: Router[GroupLink] = Router(
            lambda name, number, address: connect(name, number, address, cluster_key, self._changed)
        )
        self._numbers_of: dict[bytes, list[int]] = {}
        self._waiting: set[Joined[Any]] = set()
        self._turn = 0  # the group that gets the remainder of a split first
        self._stalls, self._busy_s = Stalls(LOOK_S, time.monotonic()), time.monotonic()
        self._looking = RestingTimer(LOOK_S, self._look)

    @property
    def links(self) -> list[GroupLink]:
        """The groups, in the order of the placement's names."""
        return self._router.groups

    @property
    def up(self) -> bool:
        return any(not link.refusing for link in self.links)

    def follow(self, groups: Sequence[tuple[str, Place]], placed: PlacedTopics = NONE_PLACED) -> None:
        """Use these groups from now on. Waiting questions are answered with their messages: clients ask again.

        Args:
            placed: see Router.follow.
        """
        changed = self._router.follow(groups, placed)
        if changed is None:
            return
        self._numbers_of.clear()
        self._withdraw_all()
        for link in self.links if self._window else ():
            link.rpc.share_window(self._window, len(self.links))
        for link in changed[0]:
            link.close()
        for link in changed[1]:
            link.on_due = self._wake
        self._wake()

    def pull(self, question: PullQuestion, on_pulled: OnPulled) -> Any:
        joined = JoinedPull(question, on_pulled, self._gives_up, self._waiting.discard)
        ranges = question.acks.split() if question.acks != NO_ACKS else []
        own = self._by_group([queue_of_range(each) for each in ranges])
        asks = question.max_messages > 0 or not ranges  # one for nothing still learns whether the engine answers
        holders = self._holders(question.scope) if asks else []
        self._turn += 1
        links = {link.number: link for link in self.links}
        usable = [number for number in holders if not self._gives_up(links[number])]
        quotas = (
            dict(zip(usable, shares(question.max_messages, len(usable), self._turn), strict=True)) if usable else {}
        )
        max_bytes = max(1, question.max_bytes // max(1, len(usable)))
        for number in sorted(quotas.keys() | own.keys()):
            if not self._gives_up(links[number]):
                wanted = max(1, quotas[number]) if number in quotas and question.max_messages > 0 else 0
                items = own.get(number, [])
                acks = AckRanges.joined([ranges[item] for item in items]) if items else NO_ACKS
                part = question._replace(max_messages=wanted, max_bytes=max_bytes, acks=acks)
                joined.ask(links[number], items, part.encode(), wanted > 0 and question.wait_ms > 0)
        return self._begin(joined)

    def read(self, question: ReadQuestion, on_read: OnRead) -> Any:
        positions = question.positions
        joined = JoinedRead(question, on_read, self._gives_up, self._waiting.discard)
        own = self._by_group([(_hash_of(each.topic.encode()), each.queue) for each in positions])
        links = {link.number: link for link in self.links}
        usable = [number for number in sorted(own) if not self._gives_up(links[number])]
        self._turn += 1
        for number, quota in zip(usable, shares(question.max_messages, max(1, len(usable)), self._turn), strict=False):
            wait_ms = question.wait_ms if quota else 0
            max_bytes = max(1, question.max_bytes // len(usable))
            part = ReadQuestion([positions[item] for item in own[number]], quota, max_bytes, wait_ms)
            joined.ask(links[number], own[number], part.encode(), wait_ms > 0)
        return self._begin(joined)

    def lend(self, request: bytes, on_lent: OnLent) -> None:
        self._router.ask_lender(LEASE, request, on_lent)

    def cancel(self, handle: Any) -> None:
        handle.withdraw()

    def acknowledge(self, scope: PullScope, acks: AckRanges) -> None:
        ranges = acks.split()
        for number, items in self._by_group([queue_of_range(each) for each in ranges]).items():
            link = self._router.numbered(number)
            if link is not None:
                part = AckRanges.joined([ranges[item] for item in items])
                link.tell(PULL, acknowledging(scope, part).encode())

    def close(self) -> None:
        self._looking.close()
        self._router.close()

    def _begin(self, joined: Joined[Any]) -> Joined[Any]:
        joined.all_asked()
        self._waiting.add(joined)
        return joined

    def _by_group(self, queues: list[tuple[int, int]]) -> dict[int, list[int]]:
        """The items' numbers by the number of the group that holds their (topic hash, queue). Raises SourceDown."""
        if self._router.placement is None:
            raise SourceDown(AWAY)
        found: dict[int, list[int]] = {}
        for item, (topic, queue) in enumerate(queues):
            found.setdefault(self._router.home(topic, queue).number, []).append(item)
        return found

    def _holders(self, scope: PullScope) -> list[int]:
        """Numbers of the groups that hold queues of the topics."""
        found = self._numbers_of.get(scope.head)
        if found is None:
            homes = [set(self._router.homes(_hash_of(name), queues)) for name, queues in scope.queues()]
            found = sorted(set().union(*homes))
            if len(self._numbers_of) >= SCOPES_MAX:
                self._numbers_of.clear()
            self._numbers_of[scope.head] = found
        return found

    def _gives_up(self, link: GroupLink) -> bool:
        """Whether to skip the group. When all groups are isolated, this machine is slow, and no group is skipped."""
        return link.refusing or (link.isolated and any(not other.isolated for other in self.links))

    def _changed(self, link: GroupLink, is_back: bool) -> None:
        self._wake()
        if is_back:
            self._withdraw_all()
        for joined in list(self._waiting):
            joined.settle()

    def _withdraw_all(self) -> None:
        for joined in list(self._waiting):
            joined.withdraw()

    def _wake(self) -> None:
        if self._looking.wake():
            self._busy_s = time.monotonic()
            self._stalls.resume(self._busy_s)

    def _look(self) -> None:
        now_s = time.monotonic()
        self._stalls.look(now_s)
        is_quiet = all(link.is_quiet for link in self.links)
        for link in self.links:
            link.look(now_s, self._stalls)
        if not is_quiet:
            self._busy_s = now_s
        elif now_s - self._busy_s > REST_S:
            self._looking.rest()


def _hash_of(stored_name: bytes) -> int:
    """The hash by which a topic's queues are placed: that of its name, whenever it was created."""
    return topic_hash(stored_name.partition(b"@")[0])


def shares(total: int, count: int, first: int) -> list[int]:
    """Split `total` into `count` shares; the remainder goes to the shares from number `first` on."""
    each, odd = divmod(total, count)
    return [each + ((number - first) % count < odd) for number in range(count)]
