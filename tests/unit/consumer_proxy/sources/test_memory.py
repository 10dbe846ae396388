"""The memory source beyond the contract of all sources, by a clock that the test turns."""

import pytest

from common.clock import FakeClock
from common.memory_broker import MemoryBroker
from common.retry import DelayList
from consumer_proxy.pull.in_process import InProcessConsumer, whole_pieces
from consumer_proxy.sources.base import Failure
from consumer_proxy.sources.memory import MemorySource
from engine.link.acknowledgement import REJECT, RETRY
from engine.link.codes import INVALID, OK, STALE_RECEIPT
from engine.link.pull import PullScope
from engine.link.record import encode_record, split_records


class Desk:
    """A store whose loop is a list of calls to make."""

    def __init__(self):
        self.clock, self.broker, self.calls = FakeClock(), MemoryBroker(), []
        self.broker.create_topic("orders", 1)
        self.source = MemorySource(
            self.broker, self.clock, lambda *call: self.calls.append(call), DelayList((100,)), attempts_max=2
        )
        self.consumer = self.of("billing", "orders")

    def of(self, group, topic):
        return InProcessConsumer(self.source, PullScope(group.encode(), {topic: 1}), invisible_ms=5000)

    def store(self, *messages):
        self.broker.append("orders", 0, [encode_record(message) for message in messages], self.clock.now_ms())

    def turn(self):
        while self.calls:
            function, *arguments = self.calls.pop(0)
            function(*arguments)

    def advance(self, ms):
        self.clock.advance(ms)
        self.source.tick()
        self.turn()

    def pull(self, consumer=None, **options):
        """The answer of a pull; None while it waits."""
        consumer, answers = consumer or self.consumer, []
        consumer.pull(consumer.question(**options), answers.append)
        assert answers == []
        self.turn()
        return answers[0] if answers else None

    def codes(self, ranges, consumer=None):
        found = []
        (consumer or self.consumer).acknowledge(ranges, found.append)
        self.turn()
        return found[0]


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.source.close()


def messages(answer):
    return [message for piece in answer.pieces() for _, message in split_records(piece.records)]


def test_a_consumer_inside_the_process_pulls_and_acknowledges(desk):
    desk.store(b"a\0", b"b\0")
    answer = desk.pull()
    assert messages(answer) == [b"a\0", b"b\0"]
    assert desk.codes(whole_pieces(answer)) == [OK]
    assert desk.codes(whole_pieces(answer)) == [STALE_RECEIPT]
    desk.advance(60_000)
    assert messages(desk.pull()) == []


def test_a_waiting_consumer_hears_of_an_append_and_may_give_up(desk):
    answers = []
    desk.consumer.pull(desk.consumer.question(wait_ms=1000), answers.append)
    desk.turn()
    desk.store(b"a\0")
    desk.turn()
    assert messages(answers[0]) == [b"a\0"]
    handle = desk.consumer.pull(desk.consumer.question(wait_ms=1000), answers.append)
    desk.consumer.cancel(handle)
    desk.turn()
    assert messages(answers[1]) == []


def test_a_retry_without_a_delay_of_its_own_backs_off_as_configured(desk):
    desk.store(b"a\0")
    assert desk.codes(whole_pieces(desk.pull(), RETRY)) == [OK]
    desk.advance(99)
    assert messages(desk.pull()) == []
    desk.advance(1)
    assert messages(desk.pull()) == [b"a\0"]


def test_a_message_that_had_its_attempts_becomes_a_dead_letter(desk):
    desk.store(b"a\0")
    for _ in range(2):
        assert messages(desk.pull()) == [b"a\0"]
        desk.advance(5000)
    assert messages(desk.pull()) == []
    letters = desk.of("undertaker", "_dlq.billing")
    answer = desk.pull(letters)
    assert messages(answer) == [b"a\0"]
    assert desk.codes(whole_pieces(answer, REJECT), letters) == [INVALID], "a dead letter has nowhere to go"


def test_a_lease_that_expired_counts_until_its_message_is_leased_again(desk):
    desk.store(b"a\0")
    answer = desk.pull()
    desk.advance(5001)
    assert desk.codes(whole_pieces(answer)) == [OK]
    assert messages(desk.pull()) == []


def test_lost_messages_come_first_and_in_order(desk):
    desk.store(b"a\0", b"b\0", b"c\0")
    desk.pull(max_messages=2)
    desk.advance(5001)
    answer = desk.pull()
    assert messages(answer) == [b"a\0", b"b\0", b"c\0"]
    assert [(piece.count, piece.attempt) for piece in answer.pieces()] == [(2, 2), (1, 1)]


def test_bytes_limit_a_pull_to_at_least_one_message(desk):
    desk.store(b"a\0" * 50, b"b\0" * 50)
    assert messages(desk.pull(max_bytes=1)) == [b"a\0" * 50]


def test_a_topic_that_is_created_later_is_found_by_who_waits(desk):
    consumer, answers = desk.of("billing", "later"), []
    consumer.pull(consumer.question(wait_ms=1000), answers.append)
    desk.turn()
    desk.broker.create_topic("later", 1)
    desk.broker.append("later", 0, [encode_record(b"a\0")], 1)
    desk.turn()
    assert messages(answers[0]) == [b"a\0"]


def test_an_acknowledgement_whose_codes_fail_says_why(desk):
    found = []
    desk.consumer.pull(desk.consumer.question(wait_ms=1000), found.append)
    desk.source.close()
    desk.turn()
    assert isinstance(found[0], Failure)
