"""Refusals of the last hour by code, with their meaning, from the history that the sampler keeps."""

import pytest

from common.contract import Code
from console.database.series_history import ALL, ANSWERS, SeriesKey
from console.watching.refusals import MEANINGS, refusals
from tests.unit.console.consoles import text_of


@pytest.fixture
def sampled(console):
    """10 messages/s refused as RATE_LIMITED and 1 as FORBIDDEN for 30 seconds, just now."""
    now_s = console.clock.now_ms() // 1000
    for at_s in range(now_s - 30, now_s, 10):
        sample = {SeriesKey(ALL, "refused.200"): 10.0, SeriesKey(ALL, "refused.105"): 1.0, SeriesKey(ALL, ANSWERS): 1.0}
        sample[SeriesKey("topic:orders", "refused.105")] = 1.0
        console.parts.sampler.add(at_s, sample)
    return console, now_s


def test_they_are_counted_with_the_most_frequent_first_and_say_what_helps(sampled):
    console, now_s = sampled
    found = refusals(console.parts.sampler, ["in", "refused.105", "refused.200"], now_s)
    assert [(each.name, each.messages) for each in found] == [("RATE_LIMITED", 300), ("FORBIDDEN", 30)]
    assert found[0].help == "Ask for a higher limit, or send less."


def test_the_pages_of_map_and_topics_show_them(sampled):
    console, _ = sampled
    console.store.put("topic", "orders", {"queues": 4}, 0)
    console.store.put("topic", "calm", {"queues": 4}, 0)
    viewer = console.as_role("viewer")
    assert "RATE_LIMITED 200 300 Over the limit" in text_of(viewer.get("/map"))
    own = text_of(viewer.get("/topics/orders"))
    assert "Messages of this topic" in own and "FORBIDDEN 105 30" in own and "RATE_LIMITED" not in own
    calm = text_of(viewer.get("/topics/calm"))
    assert "FORBIDDEN" not in calm and "Not known: the console was started without" in calm


def test_every_code_that_refuses_a_send_has_a_meaning():
    pulls_only = {Code.UNKNOWN_GROUP, Code.STALE_RECEIPT, Code.OFFSET_OUT_OF_RANGE}
    assert {code for code in Code._VALUES_TO_NAMES if code >= 100} - pulls_only == set(MEANINGS)
