"""Several broker groups as one source: requests are spread by placement, answers joined. docs/design/0009-placement-and-routing.md."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import gevent

from common.contract import Code
from common.placement import GROUPS_MAX, Placement, topic_hash
from consumer_proxy.pull.link_bytes import encode_pull
from consumer_proxy.sources.base import Answer, Source, SourceDown
from consumer_proxy.sources.group_link import Address, GroupLink
from consumer_proxy.sources.joint import AWAY, PULL, Joint, JointPull, JointRead
from consumer_proxy.sources.splitting import Pull, join_ranges, read_pull, read_topics, shares

LOOK_S = 0.005
TOPICS_KEPT = 10_000  # lists of topics whose groups are remembered


class GroupsSource(Source):
    """Follows the configuration's broker groups, by `follow`.

    Args:
        connect: makes a link: (name, address, cluster key, on_change).
    """

    def __init__(self, cluster_key: bytes, connect: Callable[..., GroupLink] = GroupLink):
        self._cluster_key, self._connect = cluster_key, connect
        self.links: list[GroupLink] = []  # in the order of the placement's names
        self._placement: Placement | None = None
        self._groups_of: dict[bytes, list[int]] = {}
        self._waiting: set[Joint] = set()
        self._turn = 0  # who is dealt an odd message first
        self._looking = gevent.get_hub().loop.timer(LOOK_S, LOOK_S)
        self._looking.start(self._look)

    @property
    def up(self) -> bool:
        return any(not link.refusing for link in self.links)

    def follow(self, groups: Sequence[tuple[str, Address]]) -> None:
        """Work by these groups from now on. Requests that wait are answered with what they have, so that they are asked anew."""
        wanted = list(groups[:GROUPS_MAX])
        if wanted == [(link.name, link.address) for link in self.links]:
            return
        old = {(link.name, link.address): link for link in self.links}
        self.links = [old.pop(each) if each in old else self._make(*each) for each in wanted]
        self._placement = Placement([link.name for link in self.links]) if wanted else None
        self._groups_of.clear()
        self._call_back()
        for link in old.values():
            link.close()

    def pull(self, request: bytes, answer: Answer) -> Joint:
        pull = read_pull(request)
        joint = JointPull(pull, answer, self._gives_up, self._waiting.discard)
        own = self._owners(pull.places)
        holders = self._holders(pull.topics) if pull.max_messages > 0 else []
        self._turn += 1
        usable = [number for number in holders if not self._gives_up(self.links[number])]
        quotas = dict(zip(usable, shares(pull.max_messages, len(usable), self._turn), strict=True)) if usable else {}
        for number in sorted(quotas.keys() | own.keys()):
            if not self._gives_up(self.links[number]):
                wanted = max(1, quotas[number]) if number in quotas else 0
                part = self._part(pull, own.get(number, []), wanted, len(usable))
                joint.ask(self.links[number], own.get(number, []), part, wanted > 0 and pull.wait_ms > 0)
        return self._begin(joint)

    def read(self, request: bytes, answer: Answer) -> Joint:
        asked = json.loads(request)
        positions = asked["positions"]
        joint = JointRead(len(positions), answer, self._gives_up, self._waiting.discard)
        own = self._owners([(topic_hash(each["topic"].encode()), each["queue"]) for each in positions])
        usable = [number for number in sorted(own) if not self._gives_up(self.links[number])]
        self._turn += 1
        for number, quota in zip(usable, shares(asked["max_messages"], max(1, len(usable)), self._turn), strict=False):
            wait_ms = asked["wait_ms"] if quota else 0
            max_bytes = max(1, asked["max_bytes"] // len(usable))
            part = {"max_messages": quota, "max_bytes": max_bytes, "wait_ms": wait_ms}
            part["positions"] = [positions[item] for item in own[number]]
            joint.ask(self.links[number], own[number], json.dumps(part).encode(), wait_ms > 0)
        return self._begin(joint)

    def lend(self, request: bytes, answer: Answer) -> None:
        """The lender is the same for all proxies: the first broker group by name."""
        lender = min(self.links, key=lambda link: link.name, default=None)
        if lender is None or not lender.ask_lender(request, answer):
            answer(Code.UNAVAILABLE, b"")

    def cancel(self, handle: Any) -> None:
        handle.withdraw()

    def tell(self, request: bytes) -> None:
        pull = read_pull(request)
        for number, items in self._owners(pull.places).items():
            self.links[number].tell(PULL, self._part(pull, items, 0, 1))

    def close(self) -> None:
        self._looking.stop()
        for link in self.links:
            link.close()

    def _part(self, pull: Pull, items: list[int], max_messages: int, among: int) -> bytes:
        return encode_pull(
            pull.group,
            pull.topics,
            max_messages=max_messages,
            max_bytes=max(1, pull.max_bytes // max(1, among)),
            wait_ms=pull.wait_ms,
            invisible_ms=pull.invisible_ms,
            start=pull.start,
            ranges=join_ranges([pull.ranges[item] for item in items]),
        )

    def _begin(self, joint: Joint) -> Joint:
        joint.begun()
        self._waiting.add(joint)
        return joint

    def _owners(self, places: list[tuple[int, int]]) -> dict[int, list[int]]:
        """Which of these (topic hash, queue) belong to which link."""
        if self._placement is None:
            raise SourceDown(AWAY)
        found: dict[int, list[int]] = {}
        for item, (topic, queue) in enumerate(places):
            found.setdefault(self._placement.home(topic, queue), []).append(item)
        return found

    def _holders(self, topics: bytes) -> list[int]:
        """The links that hold queues of these topics."""
        found = self._groups_of.get(topics)
        if found is None and self._placement is not None:
            homes = [set(self._placement.homes(topic_hash(name), queues)) for name, queues in read_topics(topics)]
            found = sorted(set().union(*homes))
            if len(self._groups_of) >= TOPICS_KEPT:
                self._groups_of.clear()
            self._groups_of[topics] = found
        return found or []

    def _make(self, name: str, address: Address) -> GroupLink:
        return self._connect(name, address, self._cluster_key, self._changed)

    def _gives_up(self, link: GroupLink) -> bool:
        """Late is who is later than the others: when all are, this machine is busy, and they have their time."""
        return link.refusing or (link.isolated and any(not other.isolated for other in self.links))

    def _changed(self, link: GroupLink, is_back: bool) -> None:
        if is_back:
            self._call_back()
        for joint in list(self._waiting):
            joint.settle()

    def _call_back(self) -> None:
        for joint in list(self._waiting):
            joint.withdraw()

    def _look(self) -> None:
        now_s = time.monotonic()
        for link in self.links:
            link.look(now_s)
