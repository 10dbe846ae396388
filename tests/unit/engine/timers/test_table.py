"""The table of pending timers: both forms side by side through a random life, and what a timer takes of memory."""

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from engine.timers import native
from engine.timers import table as table_pure

pytestmark = pytest.mark.skipif(not native.NATIVE, reason="the native form is not built")

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
DELAYS = st.one_of(
    st.integers(-100, 5000), st.integers(0, 400 * DAY_MS), st.sampled_from([4095, 4096, 4097, (1 << 24) - 1, 1 << 24])
)
YEAR_MS = 365 * DAY_MS
STEPS = st.one_of(
    st.integers(0, 5000),
    st.sampled_from([4096, 1 << 24, 30 * DAY_MS, -3_600_000, 3_600_000, -1, 3 * YEAR_MS, 30 * YEAR_MS, -20 * YEAR_MS]),
)


@pytest.mark.parametrize("years", [1, 56, 500])
def test_a_clock_that_steps_by_years_stalls_nothing(years):
    table = native.TimerTable(NOW_MS)
    table.insert(0, 64, NOW_MS + 1000 * YEAR_MS, 7)
    table.insert(0, 72, NOW_MS + years * YEAR_MS, 7)
    started_s = time.perf_counter()
    assert table.pop_due(NOW_MS + years * YEAR_MS - 1, 1000) == []
    assert [at for _, at, _, _ in table.pop_due(NOW_MS + years * YEAR_MS, 1000)] == [72]
    assert time.perf_counter() - started_s < 0.5, "slots that are empty for years are passed one after the other"


class Twins(RuleBasedStateMachine):
    """Timers of three segments with few hashes, so that they fall together."""

    entries = Bundle("entries")

    @initialize()
    def begin(self) -> None:
        self.now_ms = NOW_MS
        self.forms = [native.TimerTable(self.now_ms), table_pure.TimerTable(self.now_ms)]
        self.addresses = dict.fromkeys((0, 1 << 20, 1 << 40), 64)

    def both(self, ask):
        found, expected = (ask(form) for form in self.forms)
        assert found == expected
        return expected

    @rule(target=entries, base=st.sampled_from([0, 1 << 20, 1 << 40]), delay_ms=DELAYS, hashed=st.integers(0, 5))
    def add(self, base, delay_ms, hashed):
        self.addresses[base] += 8
        at, due_ms = self.addresses[base], max(0, self.now_ms + delay_ms)
        self.both(lambda form: form.insert(base, at, due_ms, hashed))
        return base, at, due_ms, hashed

    @rule(entry=consumes(entries))
    def remove(self, entry):
        base, at, _, hashed = entry
        self.both(lambda form: form.remove(base, at, hashed))

    @rule(hashed=st.integers(0, 6))
    def find(self, hashed):
        self.both(lambda form: sorted(form.find(hashed)))

    @rule(step_ms=STEPS)
    def time_passes(self, step_ms):
        self.now_ms = max(0, self.now_ms + step_ms)  # no clock shows a time before 1970
        while due := self.both(lambda form: form.pop_due(self.now_ms, 1 << 20)):
            assert all(due_ms <= self.now_ms for _, _, due_ms, _ in due)

    @rule()
    def look_through(self):
        def everything(form):
            found, start = [], 0
            while start >= 0:
                page, start = form.scan(start, 7)
                found += page
            return sorted(found)

        self.both(everything)

    @invariant()
    def counts_agree(self):
        if hasattr(self, "forms"):
            self.both(len)
            for base in self.addresses:
                self.both(lambda form, base=base: form.pending_in(base))

    @invariant()
    def nothing_is_slept_through(self):
        if hasattr(self, "forms"):
            early, soonest = (form.next_at() for form in self.forms)
            assert (early is None) == (soonest is None)
            assert soonest is None or early <= max(soonest, self.now_ms)


TwinsTest = Twins.TestCase
TwinsTest.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_some_of_what_is_due_is_taken_at_a_time_and_all_in_the_end():
    table = native.TimerTable(NOW_MS)
    for number in range(50_000):
        table.insert(0, 64 + number, NOW_MS + 10_000 + number % 7, number)
    taken = []
    while len(table):
        due = table.pop_due(NOW_MS + 20_000, 1000)
        assert len(due) <= 1000
        taken += due
    assert sorted(at for _, at, _, _ in taken) == [64 + number for number in range(50_000)]


def test_a_pending_timer_takes_less_than_30_bytes():
    table = native.TimerTable(NOW_MS)
    empty = table.memory_bytes
    for number in range(500_000):
        table.insert(0, 64 + number, NOW_MS + number * 67_000, number * 0x9E3779B1 & 0xFFFFFFFF)
    assert (table.memory_bytes - empty) / 500_000 < 30
