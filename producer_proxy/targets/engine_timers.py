"""Delayed messages at the engine: their broker and queue, and the requests that add and cancel them.

A delayed message is in no queue yet. With several broker groups it waits at the group that holds its later queue. No
table records that group, so a cancellation asks all groups.
"""

import time
from collections.abc import Sequence

import gevent

from common.contract import Code
from engine.client.append import Destination
from engine.client.brokers import Broker, Brokers
from engine.client.rpc import LOST
from engine.client.timers import ANY_QUEUE, Timer, decode_added, encode_add, encode_cancel
from engine.link import layout
from producer_proxy.targets.base import DelayedMessage, DelayedOutcome

Placed = tuple[int, Timer, int | None]  # index of the message, its timer, its queue; None: the broker chooses it


class EngineTimers:
    """Adds and cancels delayed messages.

    Args:
        brokers: with their links for rare operations.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._turn = 0

    def add(self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float) -> list[DelayedOutcome]:
        """Add the messages, one request per broker; return the outcomes in order. Blocks for the brokers."""
        outcomes: list[DelayedOutcome] = [(int(Code.UNAVAILABLE), None, None)] * len(messages)
        by_broker: dict[Broker, list[Placed]] = {}
        for index, message in enumerate(messages):
            place = self._place(message.message.destination, message.message.key)
            if place is not None:
                broker, topic_id, queue = place
                by_broker.setdefault(broker, []).append((index, _timer(message, topic_id, queue), queue))
        adding = [
            gevent.spawn(self._add_at, broker, durability, placed, deadline_s, outcomes)
            for broker, placed in by_broker.items()
        ]
        gevent.joinall(adding, raise_error=True)
        return outcomes

    def cancel(self, durability: int, topic: str, shown_id: str, deadline_s: float) -> tuple[int, str | None]:
        """As SendTarget.cancel. The group that held the message decides; without one, all have to answer."""
        payload, left_s = encode_cancel(durability, topic, shown_id), max(0.0, deadline_s - time.monotonic())
        asked = [each for each in self._brokers.listed if each is self._brokers.only or not each.breaker.refusing]
        calls = [gevent.spawn(broker.rpc.call, layout.TIMER_CANCEL, payload, left_s) for broker in asked]
        is_complete = asked and len(asked) == len(self._brokers.listed)
        answers = [] if is_complete else [(int(Code.UNAVAILABLE), b"")]
        for call in gevent.iwait(calls):
            code, answer = call.get()
            answers.append((int(Code.TIMEOUT) if answer is LOST else code, answer))
            if code == Code.OK:
                break
        code, answer = next((each for each in answers if each[0] == Code.OK), None) or _decisive(answers)
        return code, answer.decode("utf-8", "replace") if code == Code.NOT_CANCELLABLE else None

    def _add_at(
        self, broker: Broker, durability: int, placed: list[Placed], deadline_s: float, outcomes: list[DelayedOutcome]
    ) -> None:
        payload = encode_add(durability, [timer for _, timer, _ in placed])
        code, answer = broker.rpc.call(layout.TIMER_ADD, payload, max(0.0, deadline_s - time.monotonic()))
        if answer is LOST:
            code = int(Code.TIMEOUT)
        answers = decode_added(answer) if code == Code.OK else [(code, None, None)] * len(placed)
        for (index, timer, chosen), (each, queue, offset) in zip(placed, answers, strict=True):
            if each == Code.UNKNOWN_TOPIC:  # of an id, as in AppendRequest.answer
                self._brokers.unknown_id(broker, timer.topic_id)
                each = int(Code.UNAVAILABLE)
            outcomes[index] = (each, chosen, None) if each == Code.OK else (each, queue, offset)

    def _place(self, destination: Destination, key: bytes | int | None) -> tuple[Broker, int, int | None] | None:
        """(broker, topic id, queue or None for the broker's choice); None: no broker takes the message now."""
        only = self._brokers.only
        if only is not None:
            bound = destination.queue_of_key(key) if isinstance(key, bytes) else key
            return only, destination.topic_id, bound
        self._turn += 1
        return self._brokers.place(destination, key, self._turn)


def _timer(message: DelayedMessage, topic_id: int, queue: int | None) -> Timer:
    (destination, _, assigned, encoded), repetition = message.message, message.repetition
    if assigned is None:
        record, id_at, id_size = b"\0" + encoded, 1 + message.id_start, message.id_size
    else:
        record, id_at, id_size = b"\1" + assigned + encoded, 1, len(assigned)
    # Rounds of a repetition share their id, so it is not checked against the topic's window.
    window_ms = 0 if assigned is not None or repetition.gap_ms else destination.id_window_ms
    due_ms = message.due_ms if message.delay_ms is None else -message.delay_ms
    return Timer(
        due_ms, topic_id, ANY_QUEUE if queue is None else queue, 0, repetition.until_ms, repetition.gap_ms,
        repetition.times, repetition.growth, id_at, id_size, window_ms, record,
    )  # fmt: skip


def _decisive(answers: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    """The deciding answer when no group is known to have cancelled. One that did not answer may have, or may hold the
    message.
    """
    decisive = [each for each in answers if each[0] != Code.NOT_CANCELLABLE]
    return next((each for each in decisive if each[0] == Code.TIMEOUT), (decisive or answers)[0])
