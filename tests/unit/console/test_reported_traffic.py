"""What reports of the pipeline ask the console for, and what they give to its history."""

import math

import pytest
from sqlalchemy import func, select

from console.database import reported_minutes
from console.database.reported_minutes import CHUNK_S, MINUTES, REPORTED
from console.database.schema import points, series
from console.database.series_history import ALL, ANSWERS, COARSE_KEPT_S, FINE_KEPT_S, FINE_S, SeriesKey
from console.watching.topic_pages import sender_key
from tests.unit.console.consoles import text_of
from tests.unit.console.test_api import Program


@pytest.fixture
def operator(console) -> Program:
    return Program(console, "operator", "otto")


@pytest.fixture
def viewer(console) -> Program:
    return Program(console, "viewer", "vera")


@pytest.fixture
def begin_s(console) -> int:
    """Of the 6 hours before the present ones."""
    now_s = console.clock.now_ms() // 1000
    return now_s - now_s % CHUNK_S - CHUNK_S


def chunk(begin_s: int, counts: dict[int, float], topic: str = "orders") -> dict:
    """A chunk with `stored` at some minutes, and the other figures at the same ones."""
    values = {name: [None] * MINUTES for name in REPORTED}
    for at, count in counts.items():
        for number, name in enumerate(REPORTED):
            values[name][at] = count * (number + 1)
    return {"topic": topic, "begin_s": begin_s, **values}


def give(program: Program, *chunks: dict) -> int:
    answer = program.call("POST", "/traffic", {"chunks": list(chunks)})
    assert answer.status_code == 200, answer.data
    return answer.get_json()["minutes"]


def test_minutes_are_kept_once_and_the_one_with_more_messages_wins(console, operator, begin_s):
    first, later = chunk(begin_s, {5: 10.0, 6: 10.0, 7: 3.0}), chunk(begin_s, {5: 2.0, 7: 8.0, 8: 1.0})
    assert (give(operator, first), give(operator, first), give(operator, later), give(operator, first)) == (3, 0, 2, 0)
    found = console.parts.sampler.reported.read(
        [SeriesKey("topic:orders", name) for name in REPORTED], begin_s, begin_s + CHUNK_S, 60
    )
    assert found[SeriesKey("topic:orders", "stored")].means[5:9] == [10.0, 10.0, 8.0, 1.0]
    assert found[SeriesKey("topic:orders", "sent_p99")].means[4:9] == [None, 40.0, 40.0, 32.0, 4.0]
    assert console.parts.log.latest("report traffic", 1 << 53, 9)[0]["who"] == "otto"


def test_a_topics_page_and_the_history_show_them_at_every_range(console, operator, begin_s):
    console.store.put("topic", "orders", {"queues": 4}, 0)
    reader = console.as_role("viewer")
    assert "by reports" not in text_of(reader.get("/topics/orders"))
    give(operator, chunk(begin_s, dict.fromkeys(range(MINUTES), 10.0)))
    assert "Messages stored per second, by reports" in text_of(reader.get("/topics/orders?range=24h"))
    for within in ("24h", "7d", "30d"):
        told = operator.call("GET", f"/history?subject=topic:orders&names=stored&range={within}").get_json()
        known = [(at, value) for at, value in zip(told["times"], told["values"][0], strict=True) if value is not None]
        assert {value for _, value in known} == {10.0}, within
        assert begin_s - told["step_s"] < known[0][0] <= known[-1][0] < begin_s + CHUNK_S, within


def test_they_go_after_30_days_with_their_series(console, operator, begin_s):
    give(operator, chunk(begin_s, {1: 1.0}))
    console.parts.history.roll_up(begin_s + 3 * CHUNK_S)
    assert count(console, points) == len(REPORTED)
    console.parts.history.roll_up(begin_s + COARSE_KEPT_S + CHUNK_S)
    assert (count(console, points), count(console, series)) == (0, 0)
    assert give(operator, chunk(begin_s - COARSE_KEPT_S, {1: 1.0})) == 0, "the next roll-up would delete it"


def count(console, table) -> int:
    with console.parts.database.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_topics_are_bounded(operator, begin_s, monkeypatch):
    monkeypatch.setattr(reported_minutes, "TOPICS_MAX", 8)
    give(operator, *(chunk(begin_s, {1: 1.0}, f"t{number}") for number in range(8)))
    refused = operator.call("POST", "/traffic", {"chunks": [chunk(begin_s, {1: 1.0}, "one-more")]})
    assert refused.status_code == 422 and "the most" in refused.get_json()["error"]
    assert give(operator, chunk(begin_s, {2: 1.0}, "t7")) == 1


def test_a_report_that_makes_no_sense_is_refused_with_field_and_rule(console, operator, begin_s):
    good = chunk(begin_s, {1: 1.0})
    wrong = [
        ({}, "chunks: use a list"), ({"chunks": []}, "chunks: use a list"), ({"chunks": [good] * 51}, "chunks: use a list"),
        ({"chunks": [good, 3]}, "chunks[1]: use an object"), ({"chunks": [{**good, "more": 1}]}, "use an object"),
        ({"chunks": [{**good, "topic": "a b"}]}, "topic: use the name"),
        ({"chunks": [{**good, "begin_s": begin_s + 1}]}, "begin_s: use a multiple"),
        ({"chunks": [{**good, "begin_s": begin_s + 10 * CHUNK_S}]}, "begin_s: use a multiple"),
        ({"chunks": [{**good, "begin_s": True}]}, "begin_s: use a multiple"),
        ({"chunks": [chunk(begin_s, {})]}, "stored: has no minute"),
        ({"chunks": [{**good, "stored": [1.0]}]}, "stored: use 360 numbers"),
        *(({"chunks": [{**good, "sent_p50": [each] * MINUTES}]}, "sent_p50: use 360 numbers")
          for each in (-1, "1", 1e16, math.inf, math.nan, True, [1])),
    ]  # fmt: skip
    for body, sentence in wrong:
        answer = operator.call("POST", "/traffic", body)
        assert answer.status_code == 400 and sentence in answer.get_json()["error"], (body, answer.data)
    assert count(console, points) == 0


def test_refusals_are_told_by_application_code_and_minute(console, viewer):
    now_s = console.clock.now_ms() // 1000
    begin_s = now_s - 600
    for at_s in range(begin_s, now_s, FINE_S):
        console.parts.sampler.add(
            at_s,
            {
                SeriesKey(ALL, ANSWERS): 1.0, SeriesKey("topic:orders", "refused.200"): 1.0,
                sender_key("orders", "shop", 200): 1.0, sender_key("orders", "", 104): 0.5,
                sender_key("orders-2", "shop", 200): 7.0, SeriesKey("topic:orders", "in"): 3.0,
            },
        )  # fmt: skip
    console.parts.sampler.flush()
    told = viewer.call("GET", f"/refused?topic=orders&begin_s={begin_s}&end_s={now_s}").get_json()
    assert told["step_s"] == 60
    rows = {(row["application"], row["name"]): row["messages"] for row in told["refused"]}
    assert rows == {(None, "RATE_LIMITED"): 600, ("shop", "RATE_LIMITED"): 600, ("", "UNAUTHENTICATED"): 300}
    counts = [count for _, count in told["refused"][-1]["points"]]
    assert set(counts[1:-1]) == {60.0} and sum(counts) == 600.0
    before = viewer.call("GET", f"/refused?topic=orders&begin_s={begin_s - 60}&end_s={begin_s - 20}").get_json()
    assert before["refused"] == []
    for query in ("topic=a/b", "topic=orders&begin_s=-1", "topic=orders&end_s=x"):
        assert viewer.call("GET", f"/refused?{query}").status_code == 400, query


def test_refusals_of_days_ago_are_told_in_steps_of_ten_minutes(console, viewer):
    now_s = console.clock.now_ms() // 1000
    begin_s = now_s - now_s % CHUNK_S - 4 * FINE_KEPT_S
    for at_s in range(begin_s, begin_s + CHUNK_S, FINE_S):
        refused = {sender_key("orders", "shop", 200): 1.0} if at_s < begin_s + 3_600 else {}
        console.parts.sampler.add(at_s, {SeriesKey(ALL, ANSWERS): 1.0, **refused})
    console.parts.sampler.flush()
    console.parts.history.roll_up(begin_s + CHUNK_S + 300)
    console.parts.history.roll_up(now_s)
    told = viewer.call("GET", f"/refused?topic=orders&begin_s={begin_s}&end_s={begin_s + 7_200}").get_json()
    assert (told["step_s"], [row["messages"] for row in told["refused"]]) == (600, [3_600])
    assert [at_s for at_s, _ in told["refused"][0]["points"]] == list(range(begin_s, begin_s + 3_600, 600))
