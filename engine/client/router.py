"""Routes requests to the broker groups of a cluster: membership, the group of each queue, answers of several groups.

Both proxies route through here. A group has one address, or one per broker: MasterClient knows which of them leads.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import gevent

from common.breaker import Breaker, State
from common.limited_log import LimitedLog
from common.placement import GROUPS_MAX, NONE_PLACED, PlacedTopics, Placement
from engine.client.dial import Admits, Hello, admit_all
from engine.client.master_client import MasterClient
from engine.client.rpc import RpcClient, RpcLink
from engine.link.codes import TIMEOUT, UNAVAILABLE
from engine.link.errors import LinkDown

log = logging.getLogger("penstock.engine.client")
limited = LimitedLog(log)

LOOK_S = 0.005
"""Interval at which the breakers are told how long answers take."""
DROP_S = 10.0
"""Silence after which a link is closed and dialled again: a machine that loses its power resets no connection."""
NUMBERS = 256
"""Numbers of groups: the home of a queue is kept in one byte."""

Address = tuple[str, int]
Place = Address | tuple[Address, ...]
"""Addresses of a group: that of its only broker, or those of several, of which one leads."""

Answer = tuple[int, bytes]
"""(code, payload); with a code other than OK the payload is a sentence."""


def link_to(
    place: Place, cluster_key: bytes, *, role: str, on_hello: Callable[[Hello], None] = lambda hello: None,
    on_down: Callable[[], None] = lambda: None, admits: Admits = admit_all,
) -> RpcClient | MasterClient:  # fmt: skip
    """The link for requests to a group."""
    if addresses := brokers_at(place):
        return MasterClient(addresses, cluster_key, role=role, on_hello=on_hello, on_down=on_down, admits=admits)
    host, port = place
    return RpcClient((str(host), int(port)), cluster_key, role=role, on_hello=on_hello, on_down=on_down, admits=admits)  # type: ignore[arg-type]


def brokers_at(place: Place) -> list[Address]:
    """The addresses of a group with several brokers; empty when there is only one."""
    return [each for each in place if isinstance(each, tuple)]


class BrokerGroup:
    """One broker group: where it is, the link for requests, and the breaker that says whether to use it.

    Attributes:
        number: stands for the group in the homes of queues; see Router.
    """

    def __init__(self, name: str, number: int, address: Place, rpc: RpcLink, breaker: Breaker) -> None:
        self.name, self.number, self.address, self.rpc, self.breaker = name, number, address, rpc, breaker

    @property
    def hello(self) -> Hello | None:
        """Which engine answered last under the group's address; None: none yet."""
        return self.rpc.hello

    def observe(self, now_s: float, slowest_s: float | None, owed_s: float | None) -> None:
        """Tell the breaker what happened since the last call; see Breaker.look."""
        before = self._verdict
        self.breaker.look(now_s, slowest_s, owed_s)
        self._follow_breaker(*before)

    def link_up(self) -> None:
        """The group's link is connected and greeted."""
        before = self._verdict
        self.breaker.link_up(time.monotonic())
        self._follow_breaker(*before)

    def link_down(self, reason: str) -> None:
        """The group's link broke, or could not be opened."""
        before = self._verdict
        self.breaker.link_down(time.monotonic(), reason)
        self._follow_breaker(*before)

    def ask(self, op: int, payload: bytes, on_answer: Callable[[int, bytes], None]) -> None:
        """Send a request; `on_answer` gets UNAVAILABLE, inside this call, when the link is down."""
        try:
            self.rpc.send(op, payload, on_answer)
        except LinkDown:
            on_answer(UNAVAILABLE, b"")

    def close(self) -> None:
        """Close the group's links."""
        self.rpc.close()

    @property
    def _verdict(self) -> tuple[State, bool]:
        return self.breaker.state, self.breaker.refusing

    def _follow_breaker(self, state_before: State, was_refusing: bool) -> None:
        """Log a change of the breaker; subclasses act on it."""
        state = self.breaker.state
        if state is state_before:
            return
        if state is State.CLOSED:
            log.info("broker_group=%s: breaker closed", self.name)
        elif state_before is State.CLOSED:  # never left out: the last line tells the state
            log.warning("broker_group=%s: breaker opened: %s", self.name, self.breaker.reason)
        elif state is State.OPEN:
            limited.warning(
                "broker_group=%s: breaker opened again: %s", self.name, self.breaker.reason, about=self.name
            )
        else:
            limited.info("broker_group=%s: breaker half-open", self.name, about=self.name)


Group = TypeVar("Group", bound=BrokerGroup)


class Router(Generic[Group]):
    """The broker groups of a cluster by number, and the placement of queues over their names.

    Args:
        connect: makes a group and its links: (name, number, address).
    Attributes:
        placement: over the names of `groups`; None while no group is known.
    """

    def __init__(self, connect: Callable[[str, int, Place], Group]) -> None:
        self._connect = connect
        self._by_number: dict[int, Group] = {}
        self._last_number = -1
        self.placement: Placement | None = None
        self._placed_topics = NONE_PLACED

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order of the placement's names."""
        return list(self._by_number.values())

    def follow(
        self, wanted: Sequence[tuple[str, Place]], placed: PlacedTopics = NONE_PLACED
    ) -> tuple[list[Group], list[Group]] | None:
        """Use these groups from now on.

        Args:
            placed: the same mapping each time; its content may change.
        Returns: (groups that were removed, groups that were added); None when nothing changed. The caller closes the
            removed ones when the added ones are in use, which may take over their messages.
        """
        addresses, self._placed_topics = dict(wanted[:GROUPS_MAX]), placed
        if addresses == {group.name: group.address for group in self.groups}:
            return None
        removed = [group for group in self.groups if addresses.get(group.name) != group.address]
        for group in removed:
            del self._by_number[group.number]
        added = []
        for name in sorted(addresses.keys() - {group.name for group in self.groups}):
            group = self._connect(name, self._fresh_number(), addresses[name])
            self._by_number[group.number] = group
            added.append(group)
        self._place()
        return removed, added

    def use_one(self, group: Group) -> None:
        """Use this group and no other, permanently. Nothing is placed then."""
        self._by_number = {group.number: group}

    def renumber(self, group: Group) -> None:
        """Give the group a number that was unused for long: data learnt under its old number is void."""
        del self._by_number[group.number]
        group.number = self._fresh_number()
        self._by_number[group.number] = group
        self._place()

    def numbered(self, number: int) -> Group | None:
        """The group of this number."""
        return self._by_number.get(number)

    def home(self, topic: int, queue: int) -> Group:
        """The group that holds the queue; `topic` is its name's hash. Raises ValueError while no group is known."""
        return self.groups[self._placed().home(topic, queue)]

    def homes(self, topic: int, queues: int) -> bytes:
        """The number of the group of each queue, one byte each. Raises ValueError while no group is known."""
        numbers = bytes(self._by_number)
        return self._placed().homes(topic, queues).translate(numbers + bytes(NUMBERS - len(numbers)))

    def lender(self) -> Group | None:
        """The group that lends quota slices: the first by name, so that all proxies ask the same one."""
        return min(self._by_number.values(), key=lambda group: group.name, default=None)

    def ask_lender(self, op: int, payload: bytes, on_answer: Callable[[int, bytes], None]) -> None:
        """Send a request to the lender; UNAVAILABLE, inside this call, when there is none or its link is down."""
        lender = self.lender()
        if lender is None:
            on_answer(UNAVAILABLE, b"")
        else:
            lender.ask(op, payload, on_answer)

    def gather(
        self, op: int, payloads: Mapping[int, bytes], timeout_s: float, others_timeout_s: float
    ) -> dict[int, Answer]:
        """Ask each group for its payload, by number, and block this greenlet for the answers.

        Waits up to `timeout_s` for the first answer, then up to `others_timeout_s` for the others: TIMEOUT where none
        came.
        """
        calls = {
            number: gevent.spawn(group.rpc.call, op, payload, timeout_s)
            for number, payload in payloads.items()
            if (group := self._by_number.get(number)) is not None
        }
        gevent.joinall(list(calls.values()), timeout=timeout_s, count=1)
        gevent.joinall(list(calls.values()), timeout=others_timeout_s)
        answers = {}
        for number, call in calls.items():
            answers[number] = call.value if call.successful() else (TIMEOUT, b"")
            call.kill(block=False)
        return answers

    def close(self) -> None:
        """Close all groups."""
        for group in self.groups:
            group.close()

    def _placed(self) -> Placement:
        if self.placement is None:
            raise ValueError("no broker group is known")
        return self.placement

    def _place(self) -> None:
        self.placement = (
            Placement([group.name for group in self.groups], self._placed_topics) if self._by_number else None
        )

    def _fresh_number(self) -> int:
        number = self._last_number
        while (number := (number + 1) % NUMBERS) in self._by_number:
            pass
        self._last_number = number
        return number


def ask_all(payloads: Mapping[Group, bytes], op: int, on_answers: Callable[[dict[Group, Answer]], None]) -> None:
    """Send each group its payload; `on_answers` is called once with all answers, at once when no link is up."""
    answers: dict[Group, Answer] = {}

    def taking(group: Group) -> Callable[[int, bytes], None]:
        def take(code: int, payload: bytes) -> None:
            answers[group] = code, payload
            if len(answers) == len(payloads):
                on_answers(answers)

        return take

    if not payloads:
        on_answers(answers)
    for group, payload in payloads.items():
        group.ask(op, payload, taking(group))
