"""Calls of a library in a thread of their own, and its callbacks in the thread that waits for them."""

import threading

import pytest

from common.kafka.callback_relay import CallbackRelay, within

WAIT_S = 20.0


@pytest.fixture
def relay():
    made = CallbackRelay("relay")
    yield made
    made.end()


def test_a_call_runs_in_the_relays_thread_and_its_callbacks_in_the_callers(relay):
    threads = []

    def call():
        relay.wait(relay.hand(lambda: threads.append(threading.get_ident())), WAIT_S)
        return threading.get_ident()

    assert relay.run(call) != threading.get_ident() == threads[0]


def test_what_a_call_raises_is_raised(relay):
    with pytest.raises(ZeroDivisionError):
        relay.run(lambda: 1 // 0)
    assert relay.run(lambda: 7) == 7


def test_what_a_callback_raises_is_raised_at_once_unless_the_call_has_a_result(relay):
    def callback():
        raise ValueError("of the callback")

    def call(result):
        relay.wait(relay.hand(callback), WAIT_S)
        return result

    with pytest.raises(ValueError, match="of the callback"):
        relay.run(lambda: call([]))
    assert relay.run(lambda: call(["records"])) == ["records"]
    with pytest.raises(ValueError, match="of the callback"):
        relay.run(lambda: ["later records"])
    assert relay.run(lambda: ["later records"]) == ["later records"]


def test_a_callbacks_own_call_runs_where_the_library_waits(relay):
    threads = []

    def callback():
        threads.append(relay.inside(threading.get_ident))
        with pytest.raises(ZeroDivisionError):
            relay.inside(lambda: 1 // 0)

    def call():
        relay.wait(relay.hand(callback), WAIT_S)
        return threading.get_ident()

    assert relay.run(call) == threads[0]
    assert relay.inside(threading.get_ident) == threading.get_ident(), "nothing waits"


def test_the_wait_for_a_callback_is_bounded_and_the_callback_goes_on(relay):
    given_up, ended = threading.Event(), []

    def callback():
        assert given_up.wait(WAIT_S)
        ended.append(relay.inside(lambda: "after"))

    def call():
        relay.wait(relay.hand(callback), 0.01)
        given_up.set()

    relay.run(call)
    assert ended == ["after"]


def test_a_call_within_a_time_gives_its_result_or_what_it_raises():
    assert within(WAIT_S, lambda: 5, "call") == 5
    with pytest.raises(ZeroDivisionError):
        within(WAIT_S, lambda: 1 / 0, "call")


def test_a_call_that_does_not_end_in_time_is_left_to_itself():
    goes_on, ended = threading.Event(), threading.Event()

    def call():
        goes_on.wait(WAIT_S)
        ended.set()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        within(0.01, call, "call")
    goes_on.set()
    assert ended.wait(WAIT_S)
