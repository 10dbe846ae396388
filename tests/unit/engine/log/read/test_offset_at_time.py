"""The first record stored at or after a time: right for every time, by few look-ups however many segments there are."""

from random import Random

import pytest
from machine import Machine

from engine.env.simulated import SimulatedEnv


@pytest.fixture
def filled(form):
    """A log of many segments, with the time of each record of two queues of topic 1."""
    m = Machine(form, SimulatedEnv(), "/data")
    random = Random(7)
    times: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(600):
        m.env.clock_ms += random.choice((0, 1, 1000, 60_000))
        queue = 0 if random.random() < 0.9 else 1
        m.log.append(m.batch(1, queue, [bytes(random.randint(10, 2000))]), 1, m.env.now_ms())
        times[queue].append(m.env.now_ms())
    assert len(m.log.segments.sealed.bases) > 50
    return m, times


def expected(times: list[int], at_ms: int) -> int:
    return next((offset for offset, stored_ms in enumerate(times) if stored_ms >= at_ms), len(times))


@pytest.mark.parametrize("queue", [0, 1])
def test_the_first_record_at_or_after_each_time_is_found(filled, queue):
    m, times = filled
    for at_ms in (0, *(time + by for time in times[queue] for by in (-1, 0, 1)), 1 << 60):
        assert m.log.offset_at_time(1, queue, at_ms) == expected(times[queue], at_ms)
    assert m.log.offset_at_time(1, 3, times[0][5]) == 0
    m.reopen()
    for at_ms in times[queue][::7]:
        assert m.log.offset_at_time(1, queue, at_ms) == expected(times[queue], at_ms)


def test_it_is_found_where_the_oldest_segments_are_deleted(filled):
    m, times = filled
    m.env.clock_ms += 100 * 3_600_000
    while m.log.retention.deleted_segments < 20:
        m.env.clock_ms += m.log.retention.step()
    first = m.log.bounds(1, 0)[0]
    assert first > 10
    for at_ms in (0, times[0][first], times[0][first + 9]):
        assert m.log.offset_at_time(1, 0, at_ms) == max(first, expected(times[0], at_ms))


def test_few_segments_are_looked_up_however_many_there_are_and_none_for_recent_times(filled, monkeypatch):
    m, times = filled
    asked = []
    view = m.log._view
    span_of = view.span_of
    monkeypatch.setattr(view, "span_of", lambda *place: asked.append(place) or span_of(*place))
    monkeypatch.setattr(view, "segments_from", None)
    m.log.offset_at_time(1, 0, times[0][100])
    assert 0 < len(asked) <= 12
    asked.clear()
    m.log.offset_at_time(1, 0, times[0][-1])
    m.log.offset_at_time(1, 0, 1 << 60)
    assert asked == []
