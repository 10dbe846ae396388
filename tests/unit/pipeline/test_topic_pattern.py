"""Topics by a pattern: options, pages of names, queues that vanish meanwhile, checkpoints."""

import json
import re
from types import SimpleNamespace

import pytest

from common.contract import Code, PositionReport, TopicReport
from pipeline.errors import OptionsError, PipelineError
from pipeline.options import read_options
from pipeline.proxy.topics import QueueBounds, TopicQueue, matching_bounds, matching_topics
from pipeline.source.checkpoint import from_checkpoint


class FakePulls:
    """A proxy that knows these topics, two names per page; positions of `gone` are unknown."""

    def __init__(self, topics, gone=()):
        self.topics, self.gone, self.asked = topics, gone, []

    def topics_after(self, name):
        names = [each for each in sorted(self.topics) if each > name][:2]
        return [TopicReport(code=0, topic=each, queues=self.topics[each]) for each in names]

    def pull(self, positions, max_messages, max_bytes, wanted):
        self.asked.append(len(positions))
        reports = [
            PositionReport(Code.UNKNOWN_TOPIC, each.topic, each.queue, error="gone")
            if each.topic in self.gone
            else PositionReport(0, each.topic, each.queue, next_offset=0, min_offset=0, end_offset=7)
            for each in positions
        ]
        return SimpleNamespace(response=SimpleNamespace(positions=reports))


TOPICS = {"orders": 2, "orders-eu": 300, "orders-us": 400, "payments": 1, "reorders": 1}


@pytest.fixture
def options(tmp_path):
    credential = tmp_path / "key.json"
    credential.touch(mode=0o600)
    credential.write_text(json.dumps({"app": "a", "key_id": "k", "secret": "s"}))
    return {"endpoint": "127.0.0.1:9701", "credential": str(credential)}


def test_a_pattern_matches_whole_names_over_all_pages():
    assert matching_topics(FakePulls(TOPICS), "orders(-.*)?") == {"orders": 2, "orders-eu": 300, "orders-us": 400}
    assert matching_topics(FakePulls(TOPICS), "order") == {}


def test_the_queues_of_many_topics_are_asked_for_in_few_calls_and_a_topic_that_vanishes_is_left_out():
    pulls = FakePulls(TOPICS, gone=["orders-us"])
    found = matching_bounds(pulls, "orders.*")
    assert len(found) == 302
    assert found[TopicQueue("orders", 1)] == QueueBounds(0, 7)
    assert pulls.asked == [500, 202]


def test_topics_and_a_pattern_are_told_together_with_all_other_faults(options):
    with pytest.raises(OptionsError) as raised:
        read_options({**options, "topics": "orders", "topicPattern": "a(", "body": "xml"})
    assert len(raised.value.faults) == 3
    for each in (r"topicPattern 'a\('", "topics, topicPattern: give one of the two", "body 'xml'"):
        assert re.search(each, str(raised.value))
    with pytest.raises(OptionsError, match=r"topics: missing: .* or give topicPattern"):
        read_options(options)
    assert read_options({**options, "topicPattern": "orders.*"}).topic_pattern == "orders.*"


def test_a_checkpoint_of_topics_that_the_pattern_does_not_match_is_refused(options):
    chosen = read_options({**options, "topicPattern": "orders.*"})
    assert from_checkpoint({"orders-old/0": 4}, chosen) == {TopicQueue("orders-old", 0): 4}
    with pytest.raises(
        PipelineError, match=r"offsets of topic 'payments', the query reads topics that match orders\.\*"
    ):
        from_checkpoint({"payments/0": 4}, chosen)
