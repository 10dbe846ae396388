"""Outcomes of sends per topic: what is counted, over which time, and what the operator's page says."""

from common.clock import FakeClock
from common.config.definitions import TopicDefinition
from common.contract import Code
from common.ops.connection_pages import OpsRequest
from common.ops.send_pages import SENDS_PATH
from producer_proxy.send.topic_sends import SAMPLE_S, SAMPLES, SendOutcomes

GET = OpsRequest("GET", {}, b"", "", "")
TOPICS = {
    "plain": TopicDefinition("plain"),
    "moved": TopicDefinition("moved", home="kafka:main"),
    "both": TopicDefinition("both", secondary="kafka:main"),
}


class Watched(SendOutcomes):
    def __init__(self) -> None:
        self.clock, self.defined = FakeClock(), dict(TOPICS)
        super().__init__(self.defined.get, self.clock.monotonic_s)

    def shown(self):
        return self.pages()[SENDS_PATH](GET)[1]["topics"]

    def wait(self, seconds) -> None:
        for _ in range(int(seconds / SAMPLE_S)):
            self.clock.advance(int(SAMPLE_S * 1000))
            self.tick()


def test_topics_that_a_plan_may_move_are_counted_and_no_others():
    watched = Watched()
    for topic in (*TOPICS, "unknown"):
        watched.count(topic, Code.OK)
    assert watched.shown() == {"moved": (1, 0), "both": (1, 0)}
    watched.defined["both"] = TopicDefinition("both")
    watched.follow(b"both")
    assert watched.shown() == {"moved": (1, 0)}


def test_failures_of_the_path_count_and_what_a_caller_a_limit_or_a_fence_causes_does_not():
    watched = Watched()
    for code in Code._VALUES_TO_NAMES:
        watched.count("moved", code)
    stored, failed = (
        (Code.OK, Code.BUFFERED, Code.DUPLICATE),
        (Code.UNAVAILABLE, Code.TIMEOUT, Code.OVERLOADED, Code.DISK_FULL),
    )
    assert watched.shown() == {"moved": (len(stored), len(failed))}


def test_outcomes_are_forgotten_after_five_minutes():
    watched, window_s = Watched(), SAMPLE_S * SAMPLES
    assert window_s == 300
    watched.count("moved", Code.UNAVAILABLE)
    watched.wait(window_s / 2)
    watched.count("moved", Code.OK)
    assert watched.shown() == {"moved": (1, 1)}
    watched.wait(window_s / 2)
    assert watched.shown() == {"moved": (1, 0)}
    watched.wait(window_s / 2)
    assert watched.shown() == {}
    watched.count("moved", Code.TIMEOUT)
    assert watched.shown() == {"moved": (0, 1)}, "after a time without messages, too"


def test_the_page_is_for_reading_only():
    assert Watched().pages()[SENDS_PATH](GET._replace(method="POST"))[0].startswith("405")
