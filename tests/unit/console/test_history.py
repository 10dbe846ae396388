"""The bounded history: points, gaps, zeros, the roll-up to points of 10 minutes, bounds."""

import math

import pytest
from sqlalchemy import func, select

from console.database.schema import points, series
from console.database.series_history import (
    ALL,
    ANSWERS,
    COARSE_KEPT_S,
    COARSE_S,
    FINE_CHUNK_S,
    FINE_KEPT_S,
    FINE_S,
    SERIES_MAX,
    SeriesHistory,
    SeriesKey,
)
from console.watching.counter_rates import CounterRates, quantile
from console.watching.engine_figures import Rotation
from console.watching.metrics_pages import MetricsPages
from console.watching.sampler import HistorySampler

BEGIN_S = 1_700_006_400  # a multiple of 6 hours
LAG = SeriesKey("group:billing", "lag")
ANSWERED = SeriesKey(ALL, ANSWERS)


class Quiet:
    """Engines that are never asked: samples are given to `add`."""

    def sample(self, at_s: float) -> dict:
        return {}


@pytest.fixture
def sampler(console) -> HistorySampler:
    return HistorySampler(SeriesHistory(console.parts.database), Quiet(), MetricsPages(()))


def rows(console) -> int:
    with console.parts.database.read() as connection:
        return connection.execute(select(func.count()).select_from(points)).scalar_one()


def read(sampler: HistorySampler, begin_s: int, end_s: int, key: SeriesKey = LAG) -> tuple[int, list[float]]:
    step_s, found = sampler.read([key], begin_s, end_s)
    return step_s, found[key].largest


def test_points_are_read_back_from_memory_and_then_from_the_database(sampler):
    for number in range(40):
        sampler.add(BEGIN_S + number * FINE_S, {LAG: float(number + 1), ANSWERED: 1.0})
    assert read(sampler, BEGIN_S, BEGIN_S + 400) == (FINE_S, [float(each + 1) for each in range(40)])
    sampler.flush()
    assert read(sampler, BEGIN_S, BEGIN_S + 400)[1][29:31] == [30.0, 31.0]


def test_a_missing_point_is_0_where_the_engines_answered_and_a_gap_where_they_did_not(sampler):
    for number in range(60):
        if number < 20:
            sampler.add(BEGIN_S + number * FINE_S, {LAG: 5.0, ANSWERED: 1.0})
        elif number < 40:
            sampler.add(BEGIN_S + number * FINE_S, {ANSWERED: 1.0})
        elif number < 50:
            sampler.add(BEGIN_S + number * FINE_S, {ANSWERED: 0.0})
    sampler.flush()
    values = read(sampler, BEGIN_S, BEGIN_S + 600)[1]
    assert values[:40] == [5.0] * 20 + [0.0] * 20
    assert all(math.isnan(value) for value in values[40:])


def test_after_a_day_there_are_means_and_largest_values_of_10_minutes(sampler, console):
    for at_s in range(BEGIN_S, BEGIN_S + 2 * FINE_KEPT_S, FINE_S):
        value = 1_000.0 if at_s % COARSE_S == 0 else 10.0
        sampler.add(at_s, {LAG: value, ANSWERED: 1.0})
    end_s = BEGIN_S + 2 * FINE_KEPT_S
    sampler.flush()
    step_s, found = sampler.read([LAG], end_s - 2 * FINE_KEPT_S, end_s)
    assert step_s == COARSE_S and len(found[LAG].means) == 288
    assert {round(mean, 1) for mean in found[LAG].means} == {26.5} and set(found[LAG].largest) == {1_000.0}
    fine = FINE_KEPT_S // FINE_CHUNK_S
    assert rows(console) <= 2 * (fine + 12), "a day of fine chunks, and 4 coarse ones per day"


def test_a_day_is_read_in_steps_of_10_seconds_whatever_the_second_of_its_end(sampler):
    for at_s in range(BEGIN_S, BEGIN_S + 900, FINE_S):
        sampler.add(at_s, {LAG: 5.0, ANSWERED: 1.0})
    for end_s in (BEGIN_S + 900, BEGIN_S + 907):
        step_s, values = read(sampler, end_s - FINE_KEPT_S, end_s)
        assert step_s == FINE_S and values.count(5.0) == 90


def test_what_is_older_than_30_days_is_deleted_with_its_series(sampler, console):
    sampler.add(BEGIN_S, {LAG: 5.0, ANSWERED: 1.0})
    sampler.flush()
    history = sampler._history
    history.roll_up(BEGIN_S + FINE_KEPT_S // 2)
    assert rows(console) == 4
    history.roll_up(BEGIN_S + COARSE_KEPT_S + FINE_S)
    with console.parts.database.read() as connection:
        assert connection.execute(select(func.count()).select_from(series)).scalar_one() == 0
    sampler.add(BEGIN_S + 2 * COARSE_KEPT_S, {LAG: 5.0, ANSWERED: 1.0})
    sampler.flush()
    assert rows(console) == 2, "a series that comes back has a row again"


def test_100_000_topics_without_messages_cost_no_row(sampler, console):
    sampler.add(BEGIN_S, {SeriesKey(f"topic:t{number}", "in"): 0.0 for number in range(100_000)} | {ANSWERED: 1.0})
    sampler.flush()
    assert rows(console) == 1


def test_of_too_many_series_the_smallest_of_topics_are_dropped_and_counted(sampler, console):
    busy = {SeriesKey(f"topic:t{number}", "in"): float(number) for number in range(1, SERIES_MAX + 501)}
    sampler.add(BEGIN_S, {**busy, LAG: 1.0, ANSWERED: 1.0})
    sampler.flush()
    assert rows(console) == SERIES_MAX and sampler.dropped == 502
    assert read(sampler, BEGIN_S, BEGIN_S + 10) == (FINE_S, [1.0]), "a group counts more than a topic"
    assert math.isnan(read(sampler, BEGIN_S, BEGIN_S + 10, SeriesKey("topic:t2500", "in"))[1][0]) is False


def test_a_chunk_that_another_console_has_written_stays_as_it_is(sampler, console):
    other = SeriesHistory(console.parts.database)
    other.write(BEGIN_S, {LAG: [7.0] * 30})
    sampler.add(BEGIN_S, {LAG: 5.0, ANSWERED: 1.0})
    sampler.flush()
    assert read(sampler, BEGIN_S, BEGIN_S + 10)[1] == [7.0]


def test_a_counter_that_falls_counts_from_0_and_a_position_that_falls_counts_nothing():
    rates = CounterRates()
    assert rates.rate("a", 100, 0) is None
    assert rates.rate("a", 150, 10) == 5.0
    assert rates.rate("a", 20, 20) == 2.0, "the process has started again"
    assert rates.rate("p", 100, 0) is None and rates.rate("p", 40, 10, may_fall=False) == 0.0
    rates.forget_old(10_000)
    assert len(rates) == 0


def test_quantiles_are_linear_within_a_bucket():
    buckets = [(0.001, 50.0), (0.002, 100.0), (float("inf"), 100.0)]
    assert quantile(0.5, buckets) == 0.001 and quantile(0.75, buckets) == 0.0015
    assert quantile(0.5, []) is None and quantile(0.5, [(1.0, 0.0)]) is None
    assert quantile(0.99, [(0.001, 1.0), (float("inf"), 100.0)]) == 0.001, "beyond the last bound: that"


PAGE = """# TYPE penstock_producer_messages_total counter
penstock_producer_messages_total{{durability="fsync"}} {0}
# TYPE penstock_producer_refused_total counter
penstock_producer_refused_total{{code="OK"}} 5
penstock_producer_refused_total{{code="UNAUTHENTICATED"}} {1}
# TYPE penstock_buffer_entries gauge
penstock_buffer_entries{{store="disk"}} 7
# TYPE penstock_broker_follower_gap_bytes gauge
penstock_broker_follower_gap_bytes{{broker="engine-r2"}} 4096
"""


def test_pages_of_metrics_become_rates_by_code_and_a_dead_process_is_named():
    page = [PAGE.format(100, 0)]

    def answer(address: tuple[str, int]) -> str:
        if address[1] == 2:
            raise ConnectionRefusedError
        return page[0]

    pages = MetricsPages([("10.0.0.1", 1), ("10.0.0.1", 2)], answer)
    pages.sample(0)
    page[0] = PAGE.format(200, 30)
    found = pages.sample(10)
    assert found[SeriesKey(ALL, "in")] == 10.0 and found[SeriesKey(ALL, "refused.104")] == 3.0
    assert SeriesKey(ALL, "refused.0") not in found and found[SeriesKey(ALL, "refused")] == 3.0
    assert found[SeriesKey(ALL, "buffer")] == 7 and found[SeriesKey("broker:engine-r2", "replica_gap")] == 4096
    assert pages.away == ["10.0.0.1:2"]


@pytest.mark.parametrize(
    "page", ["", "\x00\xff", "penstock_producer_messages_total{", "<html>", "penstock_producer_x NaN x y"]
)
def test_a_page_that_is_no_page_of_metrics_costs_its_figures_only(page):
    assert MetricsPages([("10.0.0.1", 1)], lambda address: page).sample(0).get(SeriesKey(ALL, "in"), 0) == 0


def test_names_are_chosen_in_turn_and_begin_anew():
    rotation, names = Rotation(), ["a", "b", "c"]

    def page(after: str) -> list[str]:
        return [name for name in names if name > after][:2]

    assert [rotation.following(page) for _ in range(4)] == [["a", "b"], ["c"], [], ["a", "b"]]
    rotation.note("c", 100.0)
    assert rotation.moving(200.0) == ["c"] and rotation.moving(1_000.0) == []


def test_a_chart_is_points_as_json_and_words_on_the_page(console):
    console.parts.sampler.add(
        console.clock.now_ms() / 1000 - 10, {SeriesKey("group:billing", "lag"): 5.0, ANSWERED: 1.0}
    )
    browser = console.as_role("viewer")
    answer = browser.get("/charts?subject=group:billing&names=lag,in_flight&range=1h").get_json()
    assert answer["labels"] == ["Lag", "In flight"] and answer["unit"] == "messages"
    assert [value for value in answer["values"][0] if value] == [5.0] and len(answer["times"]) <= 400
    for query in ("", "?names=lag;drop", "?names=nothing", f"?names=lag&subject={'x' * 400}", "?names=refused.x"):
        assert browser.get(f"/charts{query}").status_code == 404, query
    assert browser.get("/charts?subject=%3Cscript%3E&names=in&range=forever").status_code == 200
