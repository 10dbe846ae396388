"""Counts of the copies of an id, in Kafka and in the engine: a number, "not known now", or "cannot be counted"."""

import pytest

from common.contract import Code, Message, encode_struct
from engine.link.codes import OK, TOO_LARGE
from engine.link.find import decode_find, encode_counts, encode_found
from producer_proxy.targets import engine_copies, kafka_copies
from producer_proxy.targets.base import UNCOUNTABLE, MessageSlice
from producer_proxy.targets.kafka import KafkaDestination


class Bridge:
    """A link whose answers about each topic are given."""

    connected = True

    def __init__(self, **answers):
        self._answers = answers

    def call(self, op, payload, timeout_s):
        return self._answers[decode_find(payload).topic]


def slices(*topics):
    message = encode_struct(Message(topic="t", id="a"))
    return [MessageSlice(KafkaDestination(topic, 4, 3, 1), None, None, message) for topic in topics]


def test_copies_in_kafka_are_counted_per_topic_and_a_search_that_is_too_long_is_no_count():
    bridge = Bridge(
        some=(OK, encode_counts({"a": 2})),
        none=(OK, encode_counts({})),
        long=(TOO_LARGE, b"the search took too long"),
        away=(int(Code.UNAVAILABLE), b"no broker answers"),
        odd=(OK, b"[]"),
    )
    topics = ("some", "none", "long", "away", "odd", "some")
    found = kafka_copies.count_copies(bridge, "main", slices(*topics), ["a"] * 5 + ["b"], 0, 0.0)
    assert found == [2, 0, UNCOUNTABLE, None, None, 0]


def test_copies_in_kafka_are_found_with_their_partition():
    bridge = Bridge(
        some=(OK, encode_found({"a": 3})), none=(OK, encode_found({})), long=(TOO_LARGE, b"the search took too long")
    )
    found = kafka_copies.stored_copies(bridge, "main", slices("some", "none", "long"), ["a"] * 3, 0, 0.0)
    assert [each[:2] for each in found] == [(Code.DUPLICATE, 3), (Code.OK, None), (Code.UNAVAILABLE, None)]


class EngineBroker:
    """A broker of which the answer to a look-up is given; None: it is away."""

    def __init__(self, answer):
        self._answer, self.rpc = answer, self

    def wait_answered(self, deadline_s):
        return self._answer is not None

    def call(self, op, payload, timeout_s):
        return self._answer


REPORT = b'{"next": null}'
EMPTY = int(Code.OK), len(REPORT).to_bytes(4, "little") + REPORT + bytes(4)  # no piece
UNKNOWN_TOPIC, NO_INDEX, FAILED = ((int(code), b"") for code in (Code.UNKNOWN_TOPIC, Code.INVALID, Code.TIMEOUT))


@pytest.mark.parametrize(
    "answers, count",
    [
        ((EMPTY, UNKNOWN_TOPIC), 0),
        ((EMPTY, None), None),
        ((EMPTY, FAILED), None),
        ((EMPTY, NO_INDEX), UNCOUNTABLE),
        ((None, NO_INDEX), UNCOUNTABLE),
    ],
)
def test_copies_in_the_engine_are_the_sum_of_all_brokers_answers(answers, count):
    brokers = type("Brokers", (), {"listed": [EngineBroker(each) for each in answers]})
    message = slices("t")[0]
    message = message._replace(destination=message.destination._replace(name=b"t"))
    assert engine_copies.count_copies(brokers, [message], ["a"], 0, 0.0) == [count]
