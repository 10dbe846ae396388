"""A broker's circuit breaker, with a clock that the test turns."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.breaker import SHARE_ALL, Breaker, BreakerConfig, State

LOOK_S = 0.005
CONFIG = BreakerConfig()


class Desk:
    """A breaker that is looked at every 5 ms."""

    def __init__(self):
        self.now_s = 100.0
        self.breaker = Breaker(self.now_s)
        self.owed_since_s = None

    def look(self, seconds=LOOK_S, answered_s=None):
        """Let time pass; an answer of this duration comes in every look."""
        end = self.now_s + seconds
        while self.now_s < end - 1e-9:
            self.now_s += LOOK_S
            owed_s = None if self.owed_since_s is None else self.now_s - self.owed_since_s
            self.breaker.look(self.now_s, answered_s, owed_s)

    def hang(self):
        self.owed_since_s = self.now_s


@pytest.fixture
def desk():
    made = Desk()
    made.breaker.link_up(made.now_s)
    made.look(1.0, answered_s=0.001)
    return made


def test_nothing_may_come_before_the_first_connection_and_everything_after_it():
    breaker = Breaker(0.0)
    assert (breaker.state, breaker.share, breaker.refusing) == (State.OPEN, 0, True)
    breaker.link_up(1.0)
    assert (breaker.state, breaker.share, breaker.refusing, breaker.opened) == (State.CLOSED, SHARE_ALL, False, 0)


def test_a_lost_link_opens_it_at_once_for_everything(desk):
    desk.breaker.link_down(desk.now_s, "the connection broke")
    assert (desk.breaker.state, desk.breaker.share, desk.breaker.refusing) == (State.OPEN, 0, True)
    assert (desk.breaker.reason, desk.breaker.opened) == ("the connection broke", 1)


def test_a_broker_that_hangs_is_isolated_within_50_ms(desk):
    desk.hang()
    desk.look(0.025)
    assert desk.breaker.state is State.CLOSED
    desk.look(0.020)
    assert (desk.breaker.state, desk.breaker.share) == (State.OPEN, 0)


def test_what_has_nowhere_else_to_go_is_let_through_until_patience_ends(desk):
    desk.hang()
    desk.look(0.9)
    assert (desk.breaker.share, desk.breaker.refusing) == (0, False)
    desk.look(0.2)
    assert desk.breaker.refusing


def test_it_lets_a_broker_back_in_steps_that_double(desk):
    desk.hang()
    desk.look(2.0)
    desk.owed_since_s = None
    looks = {}
    while desk.breaker.state is not State.CLOSED:
        desk.look(LOOK_S, answered_s=0.002)
        looks[desk.breaker.share] = looks.get(desk.breaker.share, 0) + 1
    assert list(looks) == [1, 2, 4, 8, 16]
    assert all(abs(looks[share] * LOOK_S - CONFIG.step_s) <= LOOK_S for share in (1, 2, 4, 8))


def test_it_opens_again_when_the_broker_hangs_again_half_way(desk):
    desk.breaker.link_down(desk.now_s, "reset")
    desk.breaker.link_up(desk.now_s)
    assert (desk.breaker.state, desk.breaker.share) == (State.HALF_OPEN, 1)
    desk.hang()
    desk.look(0.05)
    assert (desk.breaker.state, desk.breaker.opened) == (State.OPEN, 2)


def test_the_bound_grows_with_a_slow_disk_and_shrinks_again(desk):
    assert desk.breaker.bound_s == CONFIG.bound_s_min
    desk.look(5.0, answered_s=0.060)
    assert 0.060 < desk.breaker.bound_s < 0.2
    desk.look(10.0, answered_s=0.001)
    assert desk.breaker.bound_s == CONFIG.bound_s_min


def test_one_very_late_answer_does_not_excuse_those_that_follow(desk):
    desk.look(LOOK_S, answered_s=30.0)
    assert desk.breaker.bound_s < 0.05


class Life(RuleBasedStateMachine):
    """Any order of events; what is allowed follows from the evidence alone."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.breaker = Breaker(0.0)
        self.linked = False
        self.owed_since_s = None

    @rule()
    def connects(self):
        self.linked = True
        self.breaker.link_up(self.now_s)
        assert not self.breaker.refusing or self.owed_since_s is not None

    @precondition(lambda self: self.linked)
    @rule()
    def breaks(self):
        self.linked, self.owed_since_s = False, None
        self.breaker.link_down(self.now_s, "broke")
        assert self.breaker.state is State.OPEN and self.breaker.refusing

    @precondition(lambda self: self.linked and self.owed_since_s is None)
    @rule()
    def hangs(self):
        self.owed_since_s = self.now_s

    @rule(looks=st.integers(1, 300), answers=st.booleans(), slowest_s=st.floats(0, 0.5))
    def time_passes(self, looks, answers, slowest_s):
        if answers:
            self.owed_since_s = None
        for _ in range(looks):
            self.now_s += LOOK_S
            bound_s, before = self.breaker.bound_s, self.breaker.state
            owed_s = None if self.owed_since_s is None else self.now_s - self.owed_since_s
            self.breaker.look(self.now_s, slowest_s if answers else None, owed_s)
            if self.linked and owed_s is not None and owed_s > max(bound_s, self.breaker.bound_s):
                assert self.breaker.state is State.OPEN, "late answers isolate"
            elif before is not State.OPEN:
                assert self.breaker.state is not State.OPEN, "nothing else does"
            assert (
                self.breaker.refusing
                == (not self.linked or (self.breaker.state is State.OPEN and (owed_s or 0) > CONFIG.patience_s))
                or self.breaker.state is State.OPEN
            )

    @invariant()
    def shares_go_with_states(self):
        share, state = self.breaker.share, self.breaker.state
        assert (share == 0) == (state is State.OPEN) and (share == SHARE_ALL) == (state is State.CLOSED)
        assert share in (0, 1, 2, 4, 8, 16)
        assert not self.breaker.refusing or state is State.OPEN
        assert self.linked or self.breaker.refusing
        assert CONFIG.bound_s_min <= self.breaker.bound_s <= CONFIG.bound_s_max


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
