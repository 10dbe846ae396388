"""The auth throttle: delays by connection, and what /readyz tells of refused credentials."""

from common.auth_throttle import FREE, PAUSE_S_FIRST, PAUSE_S_MAX, AuthThrottle
from common.clock import FakeClock
from common.readiness import is_ready


def test_the_first_attempts_of_a_connection_are_answered_at_once_and_later_ones_with_growing_pauses():
    throttle = AuthThrottle()
    pauses = [throttle.failed("a") for _ in range(FREE + 8)]
    assert pauses[:FREE] == [0.0] * FREE and pauses[FREE] == PAUSE_S_FIRST and pauses[-1] == PAUSE_S_MAX
    assert throttle.failed("b") == 0.0


def test_refused_credentials_are_shown_for_a_minute_or_two_and_do_not_make_the_proxy_unready():
    clock = FakeClock()
    throttle = AuthThrottle(clock.monotonic_s)
    assert throttle.health() is True
    for _ in range(3):
        throttle.failed("a")
    assert throttle.health().startswith("3 calls with refused credentials") and is_ready(throttle.health())
    clock.advance(61_000)
    throttle.failed("b")
    assert throttle.health().startswith("4 calls")
    clock.advance(60_000)
    assert throttle.health().startswith("1 calls")
    clock.advance(180_000)
    assert throttle.health() is True
