"""Delayed messages and their cancellation: rules for due times and repetitions, and submission in order.

Delayed messages bypass the queues. The fallback buffer does not take them: it stores no due times, and would deliver at
once.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gevent

from common import contract
from common.config.definitions import DELAY_MS_MAX, TopicDefinition
from common.contract import Code, SendResult
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, HAS_PROPERTIES, Message
from producer_proxy.send.pending import PendingMessage, open_ones
from producer_proxy.send.returned import ReturnedMessages
from producer_proxy.send.submission import Group
from producer_proxy.targets.base import Asker, DelayedMessage, Repetition, ResolveError
from producer_proxy.targets.topics import Topics

LOOP_PREFIX = "penstock-loop-"
LOOP_RULES = {  # property -> (least, most)
    "times": (1, 1_000_000),
    "interval-ms": (100, DELAY_MS_MAX),
    "growth": (1, 1000),
    "until-ms": (0, 253_402_300_799_999),
}
ENGINE_RETENTION_MS = 72 * 3_600_000
UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"), (1, "ms"))
ONCE = Repetition(0, 0, 1, 0)


class DelayError(Exception):
    """A delay that the topic does not allow. The text names the field and the rule."""


def is_delayed(message: Message) -> bool:
    """Whether the message is delayed, or cancels a delayed one."""
    return bool(message.operation or message.flags & (HAS_DELIVER_AT | HAS_DELAY))


class Delayed(NamedTuple):
    """A delayed message in the form for its target."""

    pending: PendingMessage
    value: DelayedMessage


class DelayStage:
    """Submits delayed messages and cancellations.

    Args:
        topics: definitions and routes.
        now_ms: Unix ms, for the horizon alone: an engine counts a delay by its own clock.
        next_id: a new 16-byte id.
        returned: finds messages that have come back and have fired meanwhile; engines know the pending ones.
    """

    def __init__(
        self, topics: Topics, now_ms: Callable[[], int], next_id: Callable[[], bytes], returned: ReturnedMessages
    ) -> None:
        self._topics, self._now_ms, self._next_id, self._returned = topics, now_ms, next_id, returned

    def answer(self, pending: Sequence[PendingMessage], asked: int, timeout_s: float, application: str = "") -> None:
        """Give each delayed message and each cancellation among the open ones its result. Blocks for the targets.

        Args:
            asked: the call's durability; 0: each topic's own.
        """
        special = [each for each in pending if is_delayed(each.message)]
        if not special:
            return
        try:
            routes = self._topics.find([each.message.topic for each in special], Asker(application, timeout_s))
        except ResolveError as error:
            for each in special:
                each.refuse(error.code, str(error))
            return
        deadline_s = time.monotonic() + timeout_s
        gathered: dict[Group, list[Delayed]] = {}
        cancels: list[tuple[PendingMessage, Group]] = []
        for each in special:
            each.route = routes[each.message.topic]
        self._returned.answer([each for each in special if not each.message.operation], deadline_s)
        for each in open_ones(special):
            assert each.route is not None
            target, destination = each.route
            group = target, target.served_as(asked or destination.durability)
            if each.message.operation:
                _add(gathered, deadline_s)  # the cancelled message may be an earlier one of this call
                cancels.append((each, group))
                continue
            _cancel_all(cancels, deadline_s)  # and its id may be sent again by a later one
            try:
                value = self._delayed(each)
            except DelayError as error:
                each.refuse(Code.INVALID, str(error))
            else:
                gathered.setdefault(group, []).append(Delayed(each, value))
        _cancel_all(cancels, deadline_s)
        _add(gathered, deadline_s)

    def _delayed(self, pending: PendingMessage) -> DelayedMessage:
        """The form in which the target gets the message. Raises DelayError."""
        message = pending.message
        definition = self._topics.definition(message.topic)
        if definition is None:
            raise DelayError(f"topic={message.topic}: not defined")
        check_horizon(message, definition, self._now_ms())
        repetition = repetition_of(message)
        if message.id is None:
            pending.assigned_id = self._next_id()
        id_start = message.id_start - message.start
        delay_ms = message.delay_ms if message.flags & HAS_DELAY else None
        return DelayedMessage(pending.slice, id_start, message.id_size, message.deliver_at_ms, delay_ms, repetition)


def _add(gathered: dict[Group, list[Delayed]], deadline_s: float) -> None:
    """Send the gathered messages, to all targets and classes concurrently, and clear `gathered`."""
    adding = [gevent.spawn(_add_group, *each, deadline_s) for each in gathered.items()]
    gathered.clear()
    gevent.joinall(adding, raise_error=True)


def _add_group(group: Group, delayed: list[Delayed], deadline_s: float) -> None:
    target, durability = group
    outcomes = target.add_delayed(durability, [each.value for each in delayed], deadline_s)
    for each, outcome in zip(delayed, outcomes, strict=True):
        each.pending.settle(*outcome)


def _cancel_all(cancels: list[tuple[PendingMessage, Group]], deadline_s: float) -> None:
    """Cancel concurrently, so that one that waits for a silent broker group does not use up the others' time; clear
    `cancels`.
    """
    if not cancels:
        return
    cancelling = [gevent.spawn(_cancel, *each, deadline_s) for each in cancels]
    cancels.clear()
    gevent.joinall(cancelling, raise_error=True)


def _cancel(pending: PendingMessage, group: Group, deadline_s: float) -> None:
    target, durability = group
    shown = pending.message.id
    assert shown is not None  # the walker refuses a CANCEL without an id
    code, sentence = target.cancel(durability, pending.message.topic, shown, deadline_s)
    if code == Code.OK:
        pending.result = SendResult(code=code, id=shown)
    else:
        pending.refuse(code, sentence and f"Message.id: {sentence}")


def check_horizon(message: Message, definition: TopicDefinition, now_ms: int) -> None:
    """Raise DelayError when the message is further ahead than its topic allows."""
    horizon_ms = definition.delay_ms_max or definition.retention_ms or ENGINE_RETENTION_MS
    if message.flags & HAS_DELAY:
        field, delay_ms = "delay_ms", message.delay_ms
    else:
        field, delay_ms = "deliver_at_ms", message.deliver_at_ms - now_ms
    if delay_ms > horizon_ms:
        raise DelayError(f"Message.{field}: at most {_shown_span(horizon_ms)} ahead for this topic")


def _shown_span(ms: int) -> str:
    """The span in the largest unit of which it is a whole number."""
    unit_ms, unit = next(each for each in UNITS if ms % each[0] == 0)
    return f"{ms // unit_ms} {unit}" + ("s" if ms != unit_ms and unit != "ms" else "")


def repetition_of(message: Message) -> Repetition:
    """The repetition that the loop properties ask for. Raises DelayError."""
    if not message.flags & HAS_PROPERTIES:
        return ONCE
    properties = contract.decode_struct(contract.Message, message.encoded).properties
    given = {name[len(LOOP_PREFIX) :]: text for name, text in properties.items() if name.startswith(LOOP_PREFIX)}
    if not given:
        return ONCE
    values = {"growth": 1, "until-ms": 0} | {name: _number(name, text) for name, text in given.items()}
    for name in LOOP_RULES:
        if name not in values:
            raise DelayError(f"Message.properties: a loop needs {LOOP_PREFIX}{name} too")
    return Repetition(values["interval-ms"], values["times"] - 1, values["growth"], values["until-ms"])


def _number(name: str, text: str) -> int:
    if name not in LOOP_RULES:
        raise DelayError(f"Message.properties: {LOOP_PREFIX}{name[:40]} is none of {', '.join(LOOP_RULES)}")
    least, most = LOOP_RULES[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
        raise DelayError(f"Message.properties: {LOOP_PREFIX}{name} is a number from {least} to {most}")
    return int(text)
