"""The lag of groups as a series each: what a scrape costs, and what it leaves out."""

from types import SimpleNamespace

import pytest

from engine.errors import UnreadableError
from engine.log.memory import MemoryLog
from engine.server.series_metrics import SeriesBounds, SeriesMetrics


class CountedLog(MemoryLog):
    """Counts the looks for first offsets, and cannot read one topic."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.damaged = 0

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        self.looks += 1
        if topic_id == self.damaged:
            raise UnreadableError("the disk does not answer")
        return super().bounds(topic_id, queue)


class Desk:
    def __init__(self) -> None:
        self.log = CountedLog()
        self.groups: dict[str, SimpleNamespace] = {}
        node = SimpleNamespace(store=self.log, delivery=SimpleNamespace(groups=self.groups))
        self.metrics = SeriesMetrics(lambda: node, SeriesBounds(groups=10))

    def group(self, name: str, stored: int, acknowledged: int) -> int:
        topic = self.log.create_topics([(f"of-{name}", 1)])[0].id
        if stored:
            self.log.store(topic, 0, [b"x"] * stored, 1)
        place = SimpleNamespace(
            topic_id=topic, queue=0, next_offset=acknowledged, in_flight=SimpleNamespace(messages=0)
        )
        self.groups[name] = SimpleNamespace(topics={topic: [place]})
        return topic

    def lags(self) -> dict[str, float]:
        found = [each for each in self.metrics.collect() if each.name.endswith("group_lag_messages")]
        return {sample.labels["group"]: sample.value for sample in found[0].samples}


@pytest.fixture
def desk():
    return Desk()


def test_only_of_a_group_that_is_behind_the_first_offset_is_looked_up(desk):
    desk.group("idle", 0, 0)
    desk.group("done", 5, 5)
    topic = desk.group("behind", 9, 2)
    desk.log.retain(topic, 0, 4)
    assert desk.lags() == {"idle": 0.0, "done": 0.0, "behind": 5.0}
    assert desk.log.looks == 1


def test_a_group_whose_topic_the_disk_cannot_read_is_left_out_of_a_scrape_that_succeeds(desk):
    desk.log.damaged = desk.group("damaged", 3, 0)
    desk.group("behind", 3, 0)
    assert desk.lags() == {"behind": 3.0}
