"""Ages of calls: known by the later calls of the same process."""

from random import Random

from common.reply_token import ReplyToken, ReplyTokens
from engine.replies import call_times
from engine.replies.call_times import STEP_MS, CallTimes

TOKENS = ReplyTokens(b"k")
KEPT_MS = 300_000


def token(call, instance=7):
    return TOKENS.make(ReplyToken(call, instance, 0, 150))


def test_a_call_that_was_seen_dates_itself_and_the_earlier_ones_of_its_process():
    times = CallTimes(KEPT_MS)
    assert times.age_ms(token(5), 10_000) == 0
    times.see(token(5), 10_000)
    times.see(token(8), 20_000)
    times.see(token(4), 30_000)
    ages = [times.age_ms(b"record" + token(call), 30_000, len("record")) for call in (1, 5, 6, 8, 9)]
    assert ages == [20_000, 20_000, 10_000, 10_000, 0]
    assert times.age_ms(token(5, instance=8), 30_000) == 0


def test_the_order_of_calls_holds_when_their_numbers_begin_again():
    times = CallTimes(KEPT_MS)
    times.see(token(0xFFFFFFFE), 10_000)
    times.see(token(3), 20_000)
    assert [times.age_ms(token(call), 30_000) for call in (0xFFFFFFFE, 0xFFFFFFFF, 1, 3, 4)] == [
        20_000, 10_000, 10_000, 10_000, 0,
    ]  # fmt: skip


def test_an_age_is_never_too_high_and_at_most_a_step_too_low_once_the_call_was_seen():
    random, times, made = Random(1), CallTimes(KEPT_MS), []
    now_ms = 0
    for call in range(1, 2_000):
        made.append(now_ms)
        now_ms += random.choice((0, 1, 90, 700, 4_000))
        times.see(token(call), now_ms)
        seen_ms, now_ms = now_ms, now_ms + random.choice((0, 3, 400))
        assert now_ms - seen_ms - STEP_MS <= times.age_ms(token(call), now_ms) <= now_ms - made[-1]
        earlier = random.randrange(len(made))
        assert times.age_ms(token(earlier + 1), now_ms) <= now_ms - made[earlier]


def test_memory_is_bounded_and_what_is_older_than_the_longest_wait_stays_so(monkeypatch):
    monkeypatch.setattr(call_times, "PROCESSES_MAX", 3)
    times = CallTimes(KEPT_MS)
    for call in range(1, 1_000):
        times.see(token(call), call * 1_000)
    (seen,) = times._seen.values()
    assert len(seen[0]) <= KEPT_MS // STEP_MS + 2
    assert times.age_ms(token(1), 999_000) >= KEPT_MS
    for instance in (1, 2, 7, 3):
        times.see(token(1_000_000, instance), 1_000_000)
    assert list(times._seen) == [2, 7, 3]
