"""Claims of ids over several broker groups: the id's home is asked first when the message belongs to another group.

Only messages with an own id that is checked are concerned. Steps and failures:
docs/design/0028-ids-over-broker-groups.md.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import gevent
from gevent.event import AsyncResult

from common.contract import Code
from common.limited_log import LimitedLog
from common.names import stored_name
from common.placement import home_of_id, topic_hash
from common.wire.names import find_names
from engine.client.append import Destination, Lanes
from engine.client.brokers import Brokers
from engine.link.claim import Claim, Claimed, decode_claimed, encode_claims
from engine.link.codes import CLAIMED
from engine.link.errors import PayloadError
from engine.link.operations import CLAIM
from producer_proxy.targets.base import DelayedMessage, DelayedOutcome, MessageSlice, OnOutcomes, Outcome, ResolveError
from producer_proxy.targets.engine_pending_ids import PendingIds

limited = LimitedLog(logging.getLogger("penstock.producer_proxy"))

CLAIM_TIMEOUT_S = 1.0
"""As long as a breaker waits before it refuses keys, and less than a send by default: its answer is UNAVAILABLE then.
Longer where another broker of a group may take over, which is asked again."""

SILENT_S = 0.25
"""A broker that did not answer for so long counts as silent. Shorter deadlines of callers say nothing about it."""

PENDING_TIMEOUT_S = 0.25
"""For the answers of groups that are only asked for what they hold already."""

Settled = MessageSlice | Outcome
"""The message as it may be appended, bound to the queue of its id; or its outcome."""

Add = Callable[[Sequence[DelayedMessage]], list[DelayedOutcome]]

Renew = Callable[[Iterable[str]], Mapping[str, Destination]]


class EngineClaims:
    """Claims ids, then appends their messages.

    Args:
        brokers: with their links for rare operations.
        renew: the destinations of topics now; see EngineTopics.renewed.
    Attributes:
        open: appends that wait for claims, or for the results after them.
    """

    def __init__(self, brokers: Brokers, renew: Renew) -> None:
        self._brokers, self._pending, self._renew = brokers, PendingIds(brokers), renew
        self.open = 0

    def concerns(self, message: MessageSlice) -> bool:
        """Whether the message's id is checked over several groups."""
        return (
            self._brokers.only is None
            and message.assigned_id is None
            and message.key is not None
            and message.destination.homes is not None
            and message.destination.id_window_ms > 0
        )

    def submit(self, lanes: Lanes, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> None:
        """As SendTarget.submit. No message overtakes another of the call: all wait for the claims."""
        self._spawn(len(messages), on_outcomes, lambda: self._submit(lanes, durability, messages))

    def ask(
        self, lanes: Lanes, durability: int, message: MessageSlice, token_for: Callable[[int], bytes | None],
        on_outcomes: OnOutcomes,
    ) -> None:  # fmt: skip
        """As SendTarget.ask."""

        def work() -> list[Outcome]:
            (settled,) = self._fresh(self._settled(durability, [message], self._deadline_s(), always=True))
            if not isinstance(settled, MessageSlice):
                return [settled]
            answer: AsyncResult = AsyncResult()
            lanes.ask(*settled, token_for, answer.set)
            return [_final(each) for each in answer.get()]

        self._spawn(1, on_outcomes, work)

    def add_delayed(
        self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float, add: Add
    ) -> list[DelayedOutcome]:
        """As SendTarget.add_delayed; `add` stores messages whose claims are made. Blocks the greenlet."""
        held = self._held(messages, deadline_s)
        left = [index for index in range(len(messages)) if index not in held]
        stored = self._add_delayed(durability, [messages[index] for index in left], deadline_s, add) if left else []
        found = held | dict(zip(left, stored, strict=True))
        return [found[index] for index in range(len(messages))]

    def _held(self, messages: Sequence[DelayedMessage], deadline_s: float) -> dict[int, DelayedOutcome]:
        """The outcomes of those whose id is pending, or has fired, at any group: their claims may have ended since.

        A group that does not tell in time is passed over, or its outage would refuse every id of a delayed message.
        """
        asked = [index for index, each in enumerate(messages) if self.concerns(each.message)]
        if not asked:
            return {}
        shown = [
            (find_names(messages[index].message.encoded)[0] or b"").decode("utf-8", "surrogateescape")
            for index in asked
        ]
        slices = [messages[index].message for index in asked]
        outcomes = self._pending.find(slices, shown, min(deadline_s, time.monotonic() + PENDING_TIMEOUT_S))
        return {
            index: each
            for index, each in zip(asked, outcomes, strict=True)
            # A loop's rounds share their id, so only a pending message is a copy of it.
            if each[0] == Code.DUPLICATE and (each[1] is None or not messages[index].repetition.gap_ms)
        }

    def _add_delayed(
        self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float, add: Add
    ) -> list[DelayedOutcome]:
        slices = [each.message for each in messages]

        def store(settled: Sequence[MessageSlice], indexes: Sequence[int]) -> list[DelayedOutcome]:
            return add([messages[index]._replace(message=each) for index, each in zip(indexes, settled, strict=True)])

        # The rounds of a loop share their id, so it is not checked.
        checked = [self.concerns(each.message) and not each.repetition.gap_ms for each in messages]
        return self._stored(durability, slices, checked, deadline_s, store)

    def _spawn(self, count: int, on_outcomes: OnOutcomes, work: Callable[[], list[Outcome]]) -> None:
        def run() -> None:
            try:
                outcomes = work()
            except Exception:
                limited.exception("claims of ids: internal error, messages are answered TIMEOUT")
                outcomes = [(int(Code.TIMEOUT), 0, -1)] * count
            self.open -= 1
            on_outcomes(outcomes)

        self.open += 1
        gevent.spawn(run)

    def _submit(self, lanes: Lanes, durability: int, messages: Sequence[MessageSlice]) -> list[Outcome]:
        def store(settled: Sequence[MessageSlice], _: Sequence[int]) -> list[Outcome]:
            answer: AsyncResult = AsyncResult()
            lanes.submit(settled, answer.set)
            found: list[Outcome] = answer.get()
            return found

        checked = [self.concerns(each) for each in messages]
        return self._stored(durability, messages, checked, self._deadline_s(), store)

    def _deadline_s(self) -> float:
        return time.monotonic() + max(CLAIM_TIMEOUT_S, self._brokers.switch_s)

    def _stored(
        self, durability: int, messages: Sequence[MessageSlice], checked: Sequence[bool], deadline_s: float,
        store: Callable[[Sequence[MessageSlice], Sequence[int]], list[Outcome]],
    ) -> list[Outcome]:  # fmt: skip
        """Claim, store, and follow once the claims that the id's home has answered to an append."""
        outcomes: list[Outcome] = [(int(Code.UNAVAILABLE), 0, -1)] * len(messages)
        left, always = list(range(len(messages))), False
        for _ in range(2):
            asked = [index for index in left if checked[index]]
            claimed = self._settled(durability, [messages[index] for index in asked], deadline_s, always=always)
            waited: dict[int, Settled] = {index: messages[index] for index in left}
            waited |= dict(zip(asked, claimed, strict=True))
            settled = dict(zip(waited, self._fresh(waited.values()), strict=True))
            ready = {index: each for index, each in settled.items() if isinstance(each, MessageSlice)}
            outcomes_of = {index: each for index, each in settled.items() if not isinstance(each, MessageSlice)}
            if ready:
                outcomes_of |= dict(zip(ready, store(list(ready.values()), list(ready)), strict=True))
            for index, outcome in outcomes_of.items():
                outcomes[index] = _final(outcome)
            left, always = [index for index, each in outcomes_of.items() if each[0] == CLAIMED], True
            if not left:
                break
        return outcomes

    def _settled(
        self, durability: int, messages: Sequence[MessageSlice], deadline_s: float, *, always: bool
    ) -> list[Settled]:
        """Claim the ids of checked messages whose queue is not at the id's home; `always`: ask about the others too."""
        settled = self._fresh(messages)
        asked: dict[int, list[tuple[int, MessageSlice, Claim]]] = {}
        for index, message in enumerate(settled):
            if not isinstance(message, MessageSlice):
                continue
            home, claim = self._claim_of(message)
            if claim.queue is not None or always:
                asked.setdefault(home, []).append((index, message, claim))
        asking = {
            home: gevent.spawn(self._ask_home, home, durability, [claim for *_, claim in listed], deadline_s)
            for home, listed in asked.items()
        }
        gevent.joinall(list(asking.values()), raise_error=True)
        for home, listed in asked.items():
            for (index, message, _), claimed in zip(listed, asking[home].value, strict=True):
                settled[index] = _bound(message, claimed)
        return settled

    def _fresh(self, settled: Iterable[Settled]) -> list[Settled]:
        """Messages with the homes of now. A wait may have been for another master, whose group has another number since:
        by its former one every queue looks like that of a group other than its id's home.
        """
        found = list(settled)
        stale = {
            each.destination.name.decode() for each in found if isinstance(each, MessageSlice) and self._is_stale(each)
        }
        if not stale:
            return found
        renewed: Mapping[str, Destination] = {}
        code = int(Code.UNAVAILABLE)
        try:
            renewed = self._renew(stale)
        except ResolveError as error:
            code = error.code
        for at, each in enumerate(found):
            if isinstance(each, MessageSlice):
                fresh = each._replace(destination=renewed.get(each.destination.name.decode(), each.destination))
                found[at] = (code, 0, -1) if self._is_stale(fresh) else fresh
        return found

    def _is_stale(self, message: MessageSlice) -> bool:
        """Whether the message's queue is not at the group that its destination tells."""
        destination, queue = message.destination, _queue_of(message)
        if destination.homes is None or queue is None:
            return False
        try:
            home = self._brokers.router.home(topic_hash(destination.name), queue)
        except ValueError:
            return True
        return queue >= destination.queues or home.number != destination.homes[queue]

    def _claim_of(self, message: MessageSlice) -> tuple[int, Claim]:
        """The home of the message's id, and its claim; its queue is None when it lives there."""
        destination, queue = message.destination, _queue_of(message)
        shown = find_names(message.encoded)[0] or b""
        home = home_of_id(shown, self._brokers.id_homes)
        is_home = queue is None or destination.homes[queue] == home
        name = stored_name(destination.name.decode(), destination.made_ms)
        text = shown.decode("utf-8", "surrogateescape")
        return home, Claim(name, destination.queues, text, None if is_home else queue, destination.id_window_ms)

    def _ask_home(self, home: int, durability: int, claims: list[Claim], deadline_s: float) -> list[Claimed]:
        broker = self._brokers.router.numbered(home)
        unknown: list[Claimed] = [(int(Code.UNAVAILABLE), None, None)] * len(claims)
        if broker is None or broker.breaker.refusing or broker.is_silent:
            return unknown
        left_s = max(0.0, deadline_s - time.monotonic())
        code, answer = broker.rpc.call(CLAIM, encode_claims(durability, claims), left_s)
        if code == Code.TIMEOUT and left_s >= SILENT_S:
            broker.note_silence()
        if code == Code.DISK_FULL:
            return [(code, None, None)] * len(claims)
        try:
            return decode_claimed(answer, len(claims)) if code == Code.OK else unknown
        except PayloadError as error:
            limited.warning("broker_group=%s: %s", broker.name, error, about=broker.name)
            return unknown


def _queue_of(message: MessageSlice) -> int | None:
    key = message.key
    return message.destination.queue_of_key(key) if isinstance(key, bytes) else key


def _bound(message: MessageSlice, claimed: Claimed) -> Settled:
    """What follows from the answer of the id's home."""
    code, queue, offset = claimed
    if code not in (Code.OK, CLAIMED):
        return code, queue, offset
    if queue is None:
        return message
    if queue >= message.destination.queues:  # this proxy does not know all queues yet
        return int(Code.UNAVAILABLE), 0, -1
    return message._replace(key=queue)


def _final(outcome: Outcome) -> Outcome:
    """The outcome for the caller: a claim that is not followed any further means that nothing was stored."""
    return (int(Code.UNAVAILABLE), 0, -1) if outcome[0] == CLAIMED else outcome
