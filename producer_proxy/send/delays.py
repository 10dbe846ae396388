"""Delayed messages and their cancelling: what a send may ask of time, and how it gets to the engine.

They take a way of their own, for they go to no queue yet. With several broker groups they wait at the one that holds the queue that they
will go to; which one that is nobody remembers, so a cancellation asks all. The fallback buffer does not take them: it knows no due times,
and would deliver at once.
"""

import time
from collections.abc import Callable

import gevent

from common import contract
from common.config.definitions import DELAY_MS_MAX, TopicDefinition
from common.contract import Code, Durability, SendResult
from common.ids import show_id
from common.keyhash import queue_of
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, HAS_PROPERTIES
from engine.client.brokers import Broker, Brokers
from engine.client.timers import ANY_QUEUE, Timer, decode_added, encode_add, encode_cancel
from engine.link import layout
from producer_proxy.send.topics import ResolveError, binding_of, lane_of

LOOP_PREFIX = "penstock-loop-"
LOOP_RULES = {  # property -> (least, most)
    "times": (1, 1_000_000),
    "interval-ms": (100, DELAY_MS_MAX),
    "growth": (1, 1000),
    "until-ms": (0, 253_402_300_799_999),
}
ENGINE_RETENTION_MS = 72 * 3_600_000
_DAY_MS = 86_400_000


class DelayError(Exception):
    """The message asks for something that its topic does not allow. The text names field and rule."""


def is_delayed(message) -> bool:
    """Whether the message takes the way of this module: it is for later, or cancels one that is."""
    return bool(message.operation or message.flags & (HAS_DELIVER_AT | HAS_DELAY))


class Delays:
    """
    Args:
        topics: destinations. brokers: their links. next_id: a new 16-byte id. refusal: (code, sentence, shown id) to a result.
    """

    def __init__(
        self, topics, brokers: Brokers, now_ms: Callable[[], int], next_id: Callable[[], bytes],
        refusal: Callable[[int, str | None, str | None], SendResult],
    ) -> None:  # fmt: skip
        self._topics, self._brokers, self._now_ms, self._next_id, self._refusal = (
            topics,
            brokers,
            now_ms,
            next_id,
            refusal,
        )
        self._turn = 0

    def answer(self, call, results: list[SendResult | None], timeout_s: float) -> None:
        """Give each delayed message and each cancellation of the call that has no result yet its own. Blocks for the broker."""
        at = [index for index, message in enumerate(call.messages) if results[index] is None and is_delayed(message)]
        if not at:
            return
        try:
            found = self._topics.find([call.messages[index].topic for index in at])
        except ResolveError as error:
            for index in at:
                results[index] = self._refusal(error.code, str(error), call.messages[index].id)
            return
        deadline = time.monotonic() + timeout_s
        together: dict[tuple[int, Broker], list[tuple[int, Timer, SendResult]]] = {}
        for index in at:
            message = call.messages[index]
            destination = found[message.topic]
            lane = lane_of(call.durability, destination)
            if message.operation:
                # What stands before it in the call may be what it cancels.
                self._add(together, results, deadline)
                results[index] = self._cancel(message, _DURABILITY[lane], deadline)
                continue
            if (place := self._place(message, destination)) is None:
                results[index] = self._refusal(Code.UNAVAILABLE, None, message.id)
                continue
            broker, topic_id, queue = place
            try:
                timer, promised = self._timer(message, destination, topic_id, queue)
            except DelayError as error:
                results[index] = self._refusal(Code.INVALID, str(error), message.id)
            else:
                together.setdefault((lane, broker), []).append((index, timer, promised))
        self._add(together, results, deadline)

    def _place(self, message, destination) -> tuple[Broker, int, int | None] | None:
        """(broker, topic id, queue or None for the broker's choice); None: no broker takes it now."""
        only = self._brokers.only
        if only is not None:
            queue = None if message.key is None else queue_of(message.key.encode(), destination.queues)
            return only, destination.topic_id, queue
        self._turn += 1
        return self._brokers.place(destination, binding_of(message, destination), self._turn)

    def _timer(self, message, destination, topic_id: int, queue: int | None) -> tuple[Timer, SendResult]:
        """The timer, and the answer if the broker takes it. Raises DelayError."""
        definition = self._topics.definition(message.topic)
        now_ms = self._now_ms()
        due_ms = due_at(message, definition, now_ms)
        gap_ms, times, growth, until_ms = loop_of(message)
        encoded = bytes(message.encoded)
        if message.id is None:
            assigned = self._next_id()
            shown, record, id_at, id_size = show_id(assigned), b"\1" + assigned + encoded, 1, len(assigned)
        else:
            shown, record = message.id, b"\0" + encoded
            id_at, id_size = 1 + message.id_start - message.start, message.id_size
        # Rounds of a loop share their id, so it is not held against what the topic has had.
        window_ms = 0 if message.id is None or gap_ms else destination.id_window_ms
        timer = Timer(
            max(due_ms, now_ms), topic_id, ANY_QUEUE if queue is None else queue, 0,
            until_ms, gap_ms, times, growth, id_at, id_size, window_ms, record,
        )  # fmt: skip
        return timer, SendResult(code=Code.OK, id=shown, queue=queue)

    def _add(self, together: dict, results: list, deadline: float) -> None:
        """Send what is gathered, by durability and broker, and forget it."""
        adding = [gevent.spawn(self._add_at, *where, group, results, deadline) for where, group in together.items()]
        together.clear()
        gevent.joinall(adding, raise_error=True)

    def _add_at(self, lane: int, broker: Broker, group: list, results: list, deadline: float) -> None:
        payload = encode_add(_DURABILITY[lane], [timer for _, timer, _ in group])
        code, answer = broker.rpc.call(layout.TIMER_ADD, payload, max(0.0, deadline - time.monotonic()))
        answers = decode_added(answer) if code == Code.OK else [(code, None, None)] * len(group)
        for (index, _, promised), (each, queue, offset) in zip(group, answers, strict=True):
            if each == Code.OK:
                results[index] = promised
            elif each == Code.DUPLICATE:
                results[index] = SendResult(code=each, id=promised.id, queue=queue, offset=offset)
            else:
                results[index] = self._refusal(each, None, promised.id)

    def _cancel(self, message, durability: int, deadline: float) -> SendResult:
        payload, left_s = encode_cancel(durability, message.topic, message.id), max(0.0, deadline - time.monotonic())
        calls = [gevent.spawn(broker.rpc.call, layout.TIMER_CANCEL, payload, left_s) for broker in self._brokers.listed]
        gevent.joinall(calls)
        answers = [call.get() for call in calls] or [(int(Code.UNAVAILABLE), b"")]
        code, answer = next((each for each in answers if each[0] == Code.OK), None) or _worst(answers)
        if code == Code.OK:
            return SendResult(code=code, id=message.id)
        sentence = answer.decode("utf-8", "replace") if code == Code.NOT_CANCELLABLE else None
        return self._refusal(code, sentence and f"Message.id: {sentence}", message.id)


def _worst(answers: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    """A broker group that did not answer may have the message: only when all have said no, it cannot be cancelled."""
    return next((each for each in answers if each[0] != Code.NOT_CANCELLABLE), answers[0])


_DURABILITY = (int(Durability.MEMORY), int(Durability.FSYNC))


def due_at(message, definition: TopicDefinition, now_ms: int) -> int:
    """The moment before which the message may not be delivered. Raises DelayError when the topic does not allow it."""
    horizon_ms = definition.delay_ms_max or definition.retention_ms or ENGINE_RETENTION_MS
    if message.flags & HAS_DELAY:
        field, delay_ms = "delay_ms", message.delay_ms
    else:
        field, delay_ms = "deliver_at_ms", message.deliver_at_ms - now_ms
    if delay_ms > horizon_ms:
        raise DelayError(f"Message.{field}: at most {horizon_ms / _DAY_MS:g} days ahead for this topic")
    return now_ms + delay_ms


def loop_of(message) -> tuple[int, int, int, int]:
    """(first gap in ms, rounds behind the first, growth of the gap, last due time), as the properties say; zeros without a loop.

    Raises DelayError.
    """
    if not message.flags & HAS_PROPERTIES:
        return 0, 0, 1, 0
    properties = contract.decode_struct(contract.Message, bytes(message.encoded)).properties
    given = {name[len(LOOP_PREFIX) :]: text for name, text in properties.items() if name.startswith(LOOP_PREFIX)}
    if not given:
        return 0, 0, 1, 0
    values = {"growth": 1, "until-ms": 0} | {name: _number(name, text) for name, text in given.items()}
    for name in LOOP_RULES:
        if name not in values:
            raise DelayError(f"Message.properties: a loop needs {LOOP_PREFIX}{name} too")
    return values["interval-ms"], values["times"] - 1, values["growth"], values["until-ms"]


def _number(name: str, text: str) -> int:
    if name not in LOOP_RULES:
        raise DelayError(f"Message.properties: {LOOP_PREFIX}{name[:40]} is none of {', '.join(LOOP_RULES)}")
    least, most = LOOP_RULES[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
        raise DelayError(f"Message.properties: {LOOP_PREFIX}{name} is a number from {least} to {most}")
    return int(text)
