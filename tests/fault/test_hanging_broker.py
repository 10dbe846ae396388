"""One hanging broker of three, and its effect on the others' traffic. Short form of bench.hanging_broker, with its processes."""

import pytest

from bench import instance
from bench.hanging_broker import GROUPS, QUEUES, TOPIC, HangingRun, measure
from bench.settings import LoadSettings
from common.contract import Code

TRIES = 3  # a run in which the machine had no time for the callers says nothing
NOISE_MS = 100.0  # what a busy machine may add; the figures are the benchmark's
ISOLATION_S_MAX = 0.25


def p99_ms(course: HangingRun, stream: str, span: int) -> float:
    took = course.stream(stream).took_s(*course.spans()[span])
    return 1000 * took[int(len(took) * 0.99)]


def is_unharmed(course: HangingRun) -> bool:
    """The others' tail, while one hangs, is that of before but for the machine's own noise."""
    return all(
        p99_ms(course, stream, span) <= 2 * p99_ms(course, stream, 0) + NOISE_MS
        for stream in ("unordered", "keys of the others")
        for span in (1, 2)
    )


@pytest.fixture(scope="module")
def course():
    settings = LoadSettings(topics=1, topic_pattern=TOPIC, queues=QUEUES)
    with instance.own("--groups", str(GROUPS)) as own, own.prepared(settings) as target:
        for _ in range(TRIES):
            found = measure(own, target, 1.5)
            if found.isolation_s <= ISOLATION_S_MAX and is_unharmed(found):
                break
        yield found


def test_it_is_isolated_at_once(course):
    assert 0 <= course.isolation_s <= ISOLATION_S_MAX


def test_the_tail_of_sends_to_the_others_is_unchanged(course):
    assert is_unharmed(course), {
        stream.name: [p99_ms(course, stream.name, span) for span in range(3)] for stream in course.streams
    }


def test_unordered_messages_and_keys_of_the_others_are_all_stored(course):
    for name in ("unordered", "keys of the others"):
        assert {code for _, _, code in course.stream(name).calls} == {Code.OK}


def test_its_own_keys_learn_that_it_is_away_and_are_taken_when_it_is_back(course):
    lost, (_, gone, back) = course.stream("keys of the hanging one"), course.spans()
    assert set(lost.codes(*gone)) <= {Code.OK, Code.TIMEOUT, Code.OVERLOADED, Code.UNAVAILABLE}
    assert lost.codes(*gone)[Code.TIMEOUT] > 0
    assert set(lost.codes(course.closed_s, back[1])) == {Code.OK}
