"""Times of confirmation, from samples of a log that the test plays."""

import random

import pytest

from engine.ops import confirmed_times
from engine.ops.confirmed_times import ConfirmedTimes
from engine.ops.errors import RequestError

BOTH = ("b1", "b2")


def times(*samples: tuple[int, int, int]) -> ConfirmedTimes:
    made = ConfirmedTimes()
    for at_ms, end, confirmed in samples:
        made.note(at_ms, end, confirmed, BOTH)
    return made


def test_a_message_was_confirmed_between_two_samples():
    made = times((1000, 10, 10), (1100, 30, 10), (1200, 30, 30))
    assert made.of(1050) == {"by_ms": 1200, "in_sync": ["b1", "b2"], "after_ms": 1100}
    assert made.of(1210) == {"after_ms": 1210}  # no sample yet since it was stored


def test_one_that_a_slave_does_not_take_is_not_confirmed():
    assert times((1000, 10, 10), (1100, 30, 10), (1900, 40, 20)).of(1050) == {"after_ms": 1100}


def test_the_beginning_is_not_known_of_a_message_before_the_first_sample():
    assert times((1000, 10, 10)).of(900) == {"by_ms": 1000, "in_sync": ["b1", "b2"]}
    assert ConfirmedTimes().of(900) == {}


@pytest.mark.parametrize("again", [(900, 30, 30), (1200, 5, 5)])
def test_a_clock_that_is_set_back_and_another_log_begin_anew(again):
    made = times((1000, 10, 10), again)
    assert len(made) == 1 and made.of(1000).get("by_ms") == (again[0] if again[0] > 1000 else None)


def test_time_in_which_nothing_changes_takes_no_room():
    made = times(*((at_ms, 10, 10) for at_ms in range(1000, 90_000, 100)), (90_000, 20, 20))
    assert len(made) == 2
    assert made.of(89_950) == {"by_ms": 90_000, "in_sync": ["b1", "b2"], "after_ms": 89_950}


@pytest.mark.parametrize("seed", range(20))
def test_the_span_holds_the_true_time_whatever_was_thinned_out(seed, monkeypatch):
    monkeypatch.setattr(confirmed_times, "FINE_MAX", 20)
    monkeypatch.setattr(confirmed_times, "COARSE_MS", 500)
    chosen, made = random.Random(seed), ConfirmedTimes()
    end = confirmed = 0
    stored: list[tuple[int, int]] = []  # (time, end of the message)
    true_ms: dict[int, int] = {}
    for now_ms in range(1, 12_000):
        if now_ms % 100 == 0:
            made.note(now_ms, end, confirmed, BOTH)
        elif chosen.random() < 0.02:
            end += chosen.randint(1, 50)
            stored.append((now_ms, end))
        elif chosen.random() < 0.02:
            confirmed = chosen.randint(confirmed, end)
            true_ms |= {
                at: now_ms for at, (_, its_end) in enumerate(stored) if its_end <= confirmed and at not in true_ms
            }
    for at, (stored_ms, _) in enumerate(stored):
        told = made.of(stored_ms)
        assert "by_ms" not in told or true_ms[at] <= told["by_ms"]
        assert at not in true_ms or told.get("after_ms", 0) <= true_ms[at]
    assert len(made) < 80


def test_a_request_without_a_time_is_refused_with_its_rule():
    with pytest.raises(RequestError, match="stored_ms: use Unix milliseconds"):
        ConfirmedTimes().answer({"stored_ms": "now"}, 0)
