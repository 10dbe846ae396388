"""The numbers of waiting entries: like a sorted list of all of them, at a cost that does not grow with the topics."""

import time

from hypothesis import given
from hypothesis import strategies as st

from producer_proxy.buffer.disk.waiting import WaitingEntries

TOPICS = "abcd"
steps = st.lists(
    st.tuples(st.just("add"), st.sampled_from(TOPICS))
    | st.tuples(st.just("first"), st.frozensets(st.sampled_from(TOPICS)), st.integers(1, 6))
    | st.tuples(st.just("remove"), st.integers(0, 1 << 30)),
    max_size=60,
)


@given(steps)
def test_they_are_given_and_removed_like_those_of_a_sorted_list(steps):
    waiting, model, last = WaitingEntries(), {}, 0
    for step in steps:
        if step[0] == "add":
            last += 1
            waiting.add(step[1], last)
            model[last] = step[1]
        elif step[0] == "first":
            wanted = [number for number, topic in sorted(model.items()) if topic not in step[1]][: step[2]]
            assert waiting.first(step[1], step[2]) == wanted
        elif model:
            topic = model[sorted(model)[step[1] % len(model)]]
            own = [number for number, of in model.items() if of == topic]
            gone = {number for number in own if step[1] >> (number % 20) & 1} or {own[0]}
            waiting.remove(topic, gone)
            for number in gone:
                del model[number]
        assert waiting.oldest() == min(model, default=None)


def took(topics: int) -> float:
    """Time of a put's question and of a batch, at the best of five."""
    waiting = WaitingEntries()
    for number in range(topics):
        waiting.add(f"metrics.{number}", number)
    times = []
    for turn in range(5):
        began = time.perf_counter()
        waiting.oldest()
        found = waiting.first((), 200)
        times.append(time.perf_counter() - began)
        for number in found:
            waiting.remove(f"metrics.{number}", {number})
        assert found == list(range(turn * 200, turn * 200 + 200))
    return min(times)


def test_a_batch_costs_the_same_with_a_hundred_thousand_topics():
    assert took(100_000) < 50 * took(1_000) + 0.002, "a hundred times as many topics"
