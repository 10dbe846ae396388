"""Requests spread over broker groups and their answers joined; the links are fakes that the test answers for."""

import json

import pytest

from common.contract import Code
from common.placement import Placement, topic_hash
from consumer_proxy.sources.base import Failure, SourceDown
from consumer_proxy.sources.groups import GroupsSource, shares
from engine.client.rpc import LinkDown
from engine.link.acknowledgement import DONE, RELEASE, RETRY, AckRange, AckRanges
from engine.link.operations import LEASE
from engine.link.pieces import AnswerPiece, encode_pieces
from engine.link.pull import EARLIEST, PullAnswer, PullQuestion, PullScope, decode_request
from engine.link.read import ReadPosition, ReadQuestion
from engine.link.receipt import TOKEN
from engine.link.record import encode_record

NAMES = ("east", "north", "west")
QUEUES = 12
PLACEMENT = Placement(NAMES)
HASH = topic_hash(b"orders")


class FakeLink:
    """Keeps what it was asked."""

    def __init__(self, name, number, address, key, on_change):
        self.name, self.number, self.address, self.on_change = name, number, address, on_change
        self.isolated = self.refusing = self.away = self.closed = False
        self.asked, self.withdrawn, self.told, self.lent = [], [], [], []

    def send(self, op, request, part, answer, waits):
        if self.away:
            raise LinkDown("away")
        self.asked.append((op, request, answer, waits))
        return len(self.asked)

    def withdraw(self, request_id, part):
        self.withdrawn.append(request_id)

    def answered(self, part):
        """Nothing to keep time of."""

    def tell(self, op, request):
        self.told.append(decode_request(request))

    def ask(self, op, payload, on_answer):
        self.lent.append((op, payload, on_answer))

    def look(self, now_s):
        """The test says when it is isolated."""

    def isolate(self, refusing=False):
        self.isolated, self.refusing = True, refusing
        self.on_change(self, False)

    def come_back(self):
        self.isolated = self.refusing = False
        self.on_change(self, True)

    def close(self):
        self.closed = True

    def pull(self, number=-1):
        return decode_request(self.asked[number][1])

    def answer(self, *, codes=(), pieces=(), code=0, number=-1, sentence=b"no"):
        self.asked[number][2](code, sentence if code else PullAnswer.of(codes, pieces).payload)

    def report(self, *offsets, pieces=()):
        """Answer a READ whose positions go on at these offsets."""
        reports = json.dumps({"reports": [{"code": 0, "next_offset": offset} for offset in offsets]}).encode()
        self.asked[0][2](0, len(reports).to_bytes(4, "little") + reports + encode_pieces(pieces))


def piece(queue: int, count: int = 1, offset: int = 0) -> AnswerPiece:
    """Leased records of the topic's queue, each an empty message with an id."""
    records = encode_record(b"\0", bytes(range(16))) * count
    return AnswerPiece(token(queue, count, offset), offset, 0, queue, count, 1, 0, records)


def token(queue: int, count: int = 1, offset: int = 0) -> bytes:
    return TOKEN.pack(1, queue, count, HASH, offset, 77) + bytes(16)


def ack(queue: int, verdict: int = DONE, reason: bytes = b"") -> AckRange:
    return AckRange(token(queue), 0, 1, verdict, -1, reason)


class Desk:
    def __init__(self):
        self.source = GroupsSource(b"k" * 32, FakeLink)
        self.source.follow([(name, ("127.0.0.1", 1)) for name in NAMES])
        self.east, self.north, self.west = self.links = self.source.links
        self.answers = []

    def pull(self, max_messages=30, wait_ms=1000, ranges=(), topics=None):
        scope = PullScope(b"readers", {"orders": QUEUES} if topics is None else topics)
        question = PullQuestion(scope, max_messages, 3 << 20, wait_ms, 5000, EARLIEST, AckRanges.of(ranges))
        return self.source.pull(question, self.answers.append)

    def read(self, positions, max_messages=30, wait_ms=0):
        return self.source.read(ReadQuestion(positions, max_messages, 1 << 20, wait_ms), self.answers.append)

    def answer(self):
        """(codes of the acknowledgements, queues of the deliveries) of the only answer."""
        (answer,) = self.answers
        return answer.codes(), [piece.queue for piece in answer.pieces() for _ in range(piece.count)]


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.source.close()


def queue_of(name: str) -> int:
    """A queue of the topic that lives in this group."""
    return next(queue for queue in range(QUEUES) if NAMES[PLACEMENT.home(HASH, queue)] == name)


def test_each_group_is_asked_for_its_share_and_what_they_answer_is_joined(desk):
    desk.pull(max_messages=31)
    assert sorted(link.pull().max_messages for link in desk.links) == [10, 10, 11]
    assert {(link.pull().wait_ms, link.pull().max_bytes, link.pull().group) for link in desk.links} == {
        (1000, 1 << 20, "readers")
    }
    for link in desk.links:
        assert desk.answers == []
        link.answer(pieces=[piece(queue_of(link.name), 3)])
    assert desk.answer() == ([], [queue_of(link.name) for link in desk.links for _ in range(3)])


def test_the_odd_message_is_dealt_to_each_group_in_turn(desk):
    for _ in range(3):
        desk.pull(max_messages=31, wait_ms=0)
    assert [sum(link.pull(number).max_messages for number in range(3)) for link in desk.links] == [31, 31, 31]


def test_the_first_that_has_something_ends_the_waiting_of_the_others(desk):
    desk.pull()
    desk.north.answer(pieces=[piece(queue_of("north"))])
    assert (desk.east.withdrawn, desk.west.withdrawn, desk.answers) == ([1], [1], [])
    desk.west.answer()
    desk.east.answer(pieces=[piece(queue_of("east"))])
    assert desk.answer()[1] == [queue_of("north"), queue_of("east")]


def test_an_empty_answer_ends_nobodys_waiting(desk):
    desk.pull()
    desk.north.answer()
    assert desk.east.withdrawn == []
    desk.east.answer()
    desk.west.answer()
    assert desk.answer() == ([], [])


def test_acknowledgements_go_to_the_group_of_their_queue_and_their_codes_come_back_in_order(desk):
    order = ["west", "east", "west", "north", "east"]
    desk.pull(ranges=[ack(queue_of(name), RETRY, name.encode()) for name in order])
    for link in desk.links:
        assert link.pull().acks == [ack(queue_of(link.name), RETRY, link.name.encode())] * order.count(link.name)
    desk.west.answer(codes=[0, 106])
    desk.north.answer(codes=[100])
    desk.east.answer(codes=[0, 106])
    assert desk.answer()[0] == [0, 0, 106, 100, 106]


def test_a_pull_that_only_acknowledges_asks_only_who_is_concerned(desk):
    desk.pull(max_messages=0, ranges=[ack(queue_of("west"))])
    assert (len(desk.east.asked), len(desk.north.asked), len(desk.west.asked)) == (0, 0, 1)
    assert desk.west.asked[0][3] is False, "it waits for nothing, so its answer is due"
    desk.west.answer(codes=[0])
    assert desk.answer() == ([0], [])


def test_only_groups_that_hold_queues_of_the_topics_are_asked(desk):
    desk.pull(topics={"orders": 1})
    (home,) = {NAMES[PLACEMENT.home(HASH, 0)]}
    assert [link.name for link in desk.links if link.asked] == [home]


def test_an_isolated_group_is_not_asked_and_its_acknowledgements_are_to_be_sent_again(desk):
    desk.north.isolate()
    desk.pull(ranges=[ack(queue_of("north")), ack(queue_of("east"))])
    assert desk.north.asked == [] and desk.east.pull().max_messages == 15
    desk.east.answer(codes=[0])
    desk.west.answer(pieces=[piece(queue_of("west"))])
    assert desk.answer() == ([Code.UNAVAILABLE, 0], [queue_of("west")])


def test_a_group_that_is_isolated_meanwhile_is_not_waited_for_and_gets_back_what_it_leases_too_late(desk):
    desk.pull(ranges=[ack(queue_of("north"))])
    desk.east.answer(pieces=[piece(queue_of("east"))])
    desk.west.answer()
    assert desk.answers == []
    desk.north.isolate()
    assert desk.answer() == ([Code.TIMEOUT], [queue_of("east")])
    desk.north.answer(codes=[0], pieces=[piece(queue_of("north"), 2, 40)])
    (told,) = desk.north.told
    assert told.max_messages == 0 and told.group == "readers"
    assert told.acks == [AckRange(token(queue_of("north"), 2, 40), 0, 2, RELEASE)]


def test_while_others_wait_for_messages_an_isolated_group_ends_nothing(desk):
    desk.pull()
    desk.north.isolate()
    assert desk.answers == []
    desk.west.answer(pieces=[piece(queue_of("west"))])
    desk.east.answer()
    assert desk.answer()[1] == [queue_of("west")]


def test_a_group_that_comes_back_is_asked_soon_for_those_who_wait_are_called_back(desk):
    desk.north.isolate()
    desk.pull()
    desk.north.come_back()
    assert (desk.east.withdrawn, desk.west.withdrawn) == ([1], [1])


def test_when_one_group_refuses_the_others_answer_and_when_all_do_the_call_is_refused(desk):
    desk.pull(ranges=[ack(queue_of("north"))])
    desk.north.answer(code=203)
    desk.east.answer()
    desk.west.answer()
    assert desk.answer() == ([Code.UNAVAILABLE], [])
    desk.answers.clear()
    desk.pull()
    for link in desk.links:
        link.answer(code=203, sentence=link.name.encode())
    assert desk.answers == [Failure(203, "east")]


def test_when_nobody_can_be_asked_the_source_is_down(desk):
    for link in desk.links:
        link.isolate(refusing=True)
    assert not desk.source.up
    with pytest.raises(SourceDown):
        desk.pull()
    for link in desk.links:
        link.come_back()
        link.away = True
    with pytest.raises(SourceDown):
        desk.pull()


def test_when_all_groups_are_late_they_are_asked_and_waited_for_until_patience_ends(desk):
    desk.pull(ranges=[ack(queue_of("west"))])
    for link in desk.links:
        link.isolate()
    assert desk.answers == [] and desk.source.up
    desk.east.answer(pieces=[piece(queue_of("east"))])
    desk.north.isolate(refusing=True)
    assert desk.answers == []
    desk.west.isolate(refusing=True)
    assert desk.answer() == ([Code.TIMEOUT], [queue_of("east")])
    desk.answers.clear()
    desk.pull()
    assert [len(link.asked) for link in desk.links] == [2, 1, 1]


def test_a_pull_for_fewer_messages_than_groups_gives_back_what_came_too_much(desk):
    desk.pull(max_messages=1)
    assert [link.pull().max_messages for link in desk.links] == [1, 1, 1]
    desk.west.answer(pieces=[piece(queue_of("west"))])
    desk.east.answer(pieces=[piece(queue_of("east"), 1, 9)])
    desk.north.answer()
    assert desk.answer()[1] == [queue_of("west")]
    assert desk.east.told[0].acks == [AckRange(token(queue_of("east"), 1, 9), 0, 1, RELEASE)]


def test_a_pull_whose_client_has_left_is_withdrawn_everywhere(desk):
    handle = desk.pull()
    desk.source.cancel(handle)
    assert [link.withdrawn for link in desk.links] == [[1], [1], [1]]
    for link in desk.links:
        link.answer()
    assert desk.answer() == ([], [])


def test_what_is_given_back_goes_to_the_groups_that_leased_it(desk):
    ranges = [ack(queue_of(name), RETRY) for name in ("north", "east", "north")]
    desk.source.acknowledge(PullScope(b"readers", {}), AckRanges.of(ranges))
    assert [sum(len(told.acks) for told in link.told) for link in desk.links] == [1, 2, 0]


def test_a_damaged_answer_is_that_groups_fault_alone(desk):
    desk.pull(ranges=[ack(queue_of("east"))])
    desk.east.asked[0][2](0, b"\1\0\0\0\0\0" + b"\5\0\0\0")
    desk.north.answer()
    desk.west.answer(pieces=[piece(queue_of("west"))])
    assert desk.answer()[1] == [queue_of("west")]


def test_positions_are_read_at_their_queues_groups_and_reported_in_order(desk):
    queues = [queue_of("west"), queue_of("east"), queue_of("west")]
    desk.read([ReadPosition("orders", queue, 5 + at) for at, queue in enumerate(queues)])
    assert desk.north.asked == []
    assert [each["offset"] for each in json.loads(desk.west.asked[0][1])["positions"]] == [5, 7]
    desk.west.report(15, 17, pieces=[piece(queue_of("west"))])
    desk.east.report(16, pieces=[piece(queue_of("east"))])
    (answer,) = desk.answers
    assert [each.next_offset for each in answer.reports] == [15, 16, 17]
    assert [each.queue for each in answer.pieces()] == [queue_of("west"), queue_of("east")]


def test_positions_of_an_isolated_group_are_reported_as_unavailable(desk):
    desk.west.isolate()
    desk.read([ReadPosition("orders", queue_of(name)) for name in ("west", "east")])
    desk.east.report(3)
    (answer,) = desk.answers
    first, second = answer.reports
    assert (first.code, second.next_offset) == (Code.UNAVAILABLE, 3) and first.error


def test_quota_slices_are_asked_for_at_the_first_group_by_name(desk):
    lent = []
    desk.source.lend(b"{}", lambda code, payload: lent.append(code))
    assert [(op, payload) for op, payload, _ in desk.east.lent] == [(LEASE, b"{}")]
    desk.source.follow([])
    desk.source.lend(b"{}", lambda code, payload: lent.append(code))
    assert lent == [Code.UNAVAILABLE]


def test_a_change_of_the_groups_calls_waiting_pulls_back_and_closes_links_that_are_gone(desk):
    desk.pull()
    desk.source.follow([("east", ("127.0.0.1", 1)), ("north", ("127.0.0.1", 2))])
    assert desk.source.links[0] is desk.east and desk.source.links[1] is not desk.north
    assert (desk.east.closed, desk.north.closed, desk.west.closed) == (False, True, True)
    assert [link.withdrawn for link in (desk.east, desk.north, desk.west)] == [[1], [1], [1]]


def test_shares_add_up_and_differ_by_one_at_most():
    for total in (0, 1, 7, 32, 10_000):
        for count in (1, 2, 3, 7):
            for first in range(count):
                dealt = shares(total, count, first)
                assert sum(dealt) == total and max(dealt) - min(dealt) <= 1
    assert [shares(1, 3, first).index(1) for first in range(3)] == [0, 1, 2]
