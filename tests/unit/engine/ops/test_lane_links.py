"""Links of lanes: a later one ends the earlier one."""

from engine.ops.lane_links import LaneLinks
from engine.ops.peer import PeerState


class LanePeer:
    def __init__(self, lane: str) -> None:
        self.peer_state = PeerState(0)
        self.peer_state.lane = lane
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


def test_a_link_ends_the_earlier_one_of_its_lane_only():
    links, first, other, none = LaneLinks(), LanePeer("one"), LanePeer("two"), LanePeer("")
    for each in (first, other, none, LanePeer("")):
        links.opened(each)
    assert not first.closed
    links.opened(LanePeer("one"))
    assert first.closed and not other.closed and not none.closed


def test_a_link_that_has_ended_is_forgotten_and_the_present_one_is_not():
    links, first, second = LaneLinks(), LanePeer("one"), LanePeer("one")
    links.opened(first)
    links.opened(second)
    links.closed(first)
    links.opened(LanePeer("one"))
    assert second.closed
    links.closed(second)
    gone = LanePeer("two")
    links.opened(gone)
    links.closed(gone)
    links.opened(LanePeer("two"))
    assert not gone.closed
