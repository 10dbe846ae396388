"""Figures of topics from the producer proxies' pages: rates, quantiles, bounds."""

import json

from common.ops.topic_figures import BUCKETS
from console.database.series_history import SeriesKey
from console.watching.topic_pages import TopicPages

ONE, TWO = ("10.0.0.1", 9101), ("10.0.0.2", 9101)


class Proxies:
    def __init__(self) -> None:
        self.told: dict[tuple[str, int], object] = {}

    def read(self, address, path) -> str:
        assert path.startswith("/topic-figures?within_s=15&limit=100")
        if address not in self.told:
            raise OSError("status 404")
        return json.dumps(self.told[address])


def page(buckets: dict[int, int], refused: dict[str, int], left_out: int = 0) -> dict:
    counts = [buckets.get(number, 0) for number in range(BUCKETS)]
    return {"topics": {"orders": {"buckets": counts, "refused": refused}}, "left_out": left_out, "pushed_out": 0}


def test_rates_and_times_of_a_topic_are_those_of_all_proxies_between_two_looks():
    proxies = Proxies()
    pages = TopicPages(proxies.read)
    proxies.told = {ONE: page({1: 1_000}, {"200": 70}), TWO: page({}, {})}
    first = pages.sample([ONE, TWO], 100.0)
    assert first[SeriesKey("topic:orders", "refused.200")] == 0.0, "totals of an unknown time are no rate"
    proxies.told = {ONE: page({1: 1_090}, {"200": 90}), TWO: page({4: 10}, {"200": 5, "206": 10}, left_out=3)}
    found = pages.sample([ONE, TWO], 110.0)
    assert found[SeriesKey("topic:orders", "refused.200")] == 2.5
    assert found[SeriesKey("topic:orders", "refused.206")] == 1.0, "one that is new there has begun from 0"
    assert 62.5e-6 < found[SeriesKey("topic:orders", "send_p50")] <= 125e-6
    assert 500e-6 < found[SeriesKey("topic:orders", "send_p99")] <= 1e-3
    assert pages.left_out == 3


def test_a_proxy_of_an_earlier_version_or_with_a_strange_answer_has_no_figures():
    proxies = Proxies()
    proxies.told = {ONE: {"topics": []}, TWO: page({}, {"no number": 1})}
    assert TopicPages(proxies.read).sample([ONE, TWO, ("10.0.0.3", 1)], 10.0) == {}
