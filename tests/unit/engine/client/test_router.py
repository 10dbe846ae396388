"""Membership, placement and questions to several groups; the links are fakes that the test answers for."""

import gevent
import pytest

from common.breaker import Breaker, State
from common.placement import Placement
from engine.client.router import NUMBERS, BrokerGroup, Router, ask_all
from engine.link.codes import OK, TIMEOUT, UNAVAILABLE
from engine.link.errors import LinkDown

HERE = ("127.0.0.1", 1)
THERE = ("127.0.0.1", 2)


class FakeRpc:
    def __init__(self):
        self.asked, self.is_down, self.is_closed, self.takes_s = [], False, False, 0.0

    def send(self, op, payload, callback):
        if self.is_down:
            raise LinkDown("down")
        self.asked.append((op, payload, callback))

    def call(self, op, payload, timeout_s):
        self.asked.append((op, payload, None))
        gevent.sleep(self.takes_s)
        return OK, payload

    def close(self):
        self.is_closed = True


def connect(name, number, address):
    return BrokerGroup(name, number, address, FakeRpc(), Breaker(0.0))


@pytest.fixture
def router():
    made = Router(connect)
    made.follow([("west", HERE), ("east", HERE), ("north", HERE)])
    return made


def test_each_queue_has_the_home_that_placement_gives_it(router):
    names = [group.name for group in router.groups]
    placement = Placement(names)
    homes = router.homes(77, 32)
    assert [router.numbered(number).name for number in homes] == [
        names[placement.home(77, queue)] for queue in range(32)
    ]
    assert all(router.home(77, queue).number == homes[queue] for queue in range(32))


def test_following_names_what_was_removed_and_what_was_added(router):
    east, north, west = router.groups
    assert router.follow([("north", HERE), ("west", HERE), ("east", HERE)]) is None
    removed, added = router.follow([("east", HERE), ("north", THERE), ("south", HERE)])
    assert removed == [north, west] and [group.name for group in added] == ["north", "south"]
    assert router.groups == [east, *added] and not east.rpc.is_closed
    assert [router.numbered(group.number) for group in removed] == [None, None]
    assert len({group.number for group in (*removed, *router.groups)}) == 5, "a number is not used again soon"


def test_a_number_is_used_again_only_after_all_others(router):
    east = router.groups[0]
    before = east.number
    seen = set()
    for _ in range(NUMBERS - 3):
        router.renumber(east)
        seen.add(east.number)
    assert before not in seen
    router.renumber(east)
    assert east.number == before and router.numbered(before) is east


def test_without_groups_nothing_has_a_home():
    router = Router(connect)
    for ask in (lambda: router.home(1, 0), lambda: router.homes(1, 4)):
        with pytest.raises(ValueError, match="no broker group"):
            ask()
    said = []
    router.ask_lender(60, b"", lambda code, payload: said.append(code))
    assert said == [UNAVAILABLE]


def test_the_lender_is_the_first_group_by_name(router):
    router.ask_lender(60, b"x", lambda code, payload: None)
    assert [[(op, payload) for op, payload, _ in group.rpc.asked] for group in router.groups] == [[(60, b"x")], [], []]
    said = []
    router.lender().rpc.is_down = True
    router.ask_lender(60, b"x", lambda code, payload: said.append(code))
    assert said == [UNAVAILABLE]


def test_answers_of_all_groups_come_together(router):
    east, north, west = router.groups
    north.rpc.is_down = True
    said = []
    ask_all({east: b"e", north: b"n", west: b"w"}, 61, said.append)
    west.rpc.asked[0][2](OK, b"W")
    assert said == []
    east.rpc.asked[0][2](OK, b"E")
    assert said == [{east: (OK, b"E"), north: (UNAVAILABLE, b""), west: (OK, b"W")}]
    ask_all({}, 61, said.append)
    assert said[1] == {}


def test_gathering_waits_for_the_first_answer_then_shortly_for_the_others(router):
    east, north, west = router.groups
    west.rpc.takes_s = 60.0
    north.rpc.takes_s = 0.02
    found = router.gather(11, {east.number: b"e", north.number: b"n", west.number: b"w", 200: b"gone"}, 5.0, 0.05)
    assert found == {east.number: (OK, b"e"), north.number: (OK, b"n"), west.number: (TIMEOUT, b"")}


def test_a_breaker_follows_the_link_and_late_answers(router, caplog):
    caplog.set_level("INFO", "penstock.engine.client")
    group = router.groups[0]
    group.link_up()
    assert (group.breaker.state, caplog.messages) == (State.CLOSED, ["broker_group=east: breaker closed"])
    group.link_down("the connection broke")
    assert caplog.messages[-1] == "broker_group=east: breaker opened: the connection broke"
    group.link_down("again")
    assert len(caplog.messages) == 2
    group.link_up()
    group.observe(0.0, None, 9.0)
    assert group.breaker.state is State.OPEN and group.breaker.refusing


def test_closing_closes_all_links(router):
    router.close()
    assert all(group.rpc.is_closed for group in router.groups)
