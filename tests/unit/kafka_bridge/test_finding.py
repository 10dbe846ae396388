"""FIND: which ids a topic's records have since a time; the question's bytes, the search, and its faults."""

import queue

import pytest

from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.contract import Code
from common.kafka.base import END
from common.kafka.errors import ClusterUnreachable
from common.kafka.records import Records
from engine.link.codes import OK
from engine.link.errors import PayloadError
from engine.link.find import FindRequest, decode_counts, decode_find, decode_found, encode_find, encode_found
from kafka_bridge import finding
from kafka_bridge.finding import Finder

ANSWER_S_MAX = 20.0


class OneTopic:
    """A driver over one topic `t`: lists of (timestamp, id) by partition."""

    def __init__(self, *partitions) -> None:
        self.partitions, self.fault, self.polls = partitions, None, 0

    def admin(self, connection):
        if self.fault is not None:
            raise self.fault
        return self

    def reader(self, connection, options):
        assert not options.committed_only
        return self

    def topics(self, names):
        return {"t": type("T", (), {"partitions": len(self.partitions)})} if "t" in names else {}

    def offsets(self, partitions, at):
        if at == END:
            return {each: len(self.partitions[each.number]) for each in partitions}
        return {
            each: next((n for n, (time, _) in enumerate(self.partitions[each.number]) if time >= at), None)
            for each in partitions
        }

    def assign(self, positions):
        self._positions = dict(positions)

    def positions(self):
        return self._positions

    def poll(self, wait_s):
        """One record of each partition per poll."""
        self.polls += 1
        found = []
        for each, at in self._positions.items():
            if at < len(self.partitions[each.number]):
                time, name = self.partitions[each.number][at]
                headers = [("penstock-id", name.encode())] if name else []
                found.append(Records(each, at + 1, [at], [time], [None], [b""], [headers]))
                self._positions[each] = at + 1
        return found

    def close(self):
        pass


@pytest.fixture
def config():
    store = MemoryConfigStore()
    store.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
    return ConfigView(store)


def find(config, driver, since_ms, *ids, topic="t", cluster="main"):
    finder, answers = Finder(config, lambda cluster: driver), queue.Queue()
    finder.find(FindRequest(cluster, topic, since_ms, frozenset(ids)), lambda *answer: answers.put(answer))
    answer = answers.get(timeout=ANSWER_S_MAX)
    finder.close()
    return answer


def test_ids_are_found_with_their_partitions_and_others_are_missing(config):
    driver = OneTopic([(1, "a"), (2, "b")], [], [(1, "c"), (3, "")])
    code, answer = find(config, driver, 0, "b", "c", "z")
    assert (code, decode_found(answer)) == (OK, {"b": 0, "c": 2})


def test_records_before_the_time_are_not_read(config):
    driver = OneTopic([(1, "a"), (5, "b")])
    assert decode_found(find(config, driver, 4, "a", "b")[1]) == {"b": 0}
    assert decode_found(find(config, driver, 9, "a", "b")[1]) == {}


def test_a_search_ends_once_all_ids_are_found(config):
    driver = OneTopic([(1, "a")] + [(2, "x")] * 50)
    assert decode_found(find(config, driver, 0, "a")[1]) == {"a": 0}
    assert driver.polls == 1


def test_all_records_are_read_where_they_are_counted(config):
    driver = OneTopic([(1, "a"), (2, "b"), (3, "a")], [(4, "a")])
    finder, answers = Finder(config, lambda cluster: driver), queue.Queue()
    ids = frozenset(("a", "b", "z"))
    finder.find(FindRequest("main", "t", 2, ids, is_counted=True), lambda *answer: answers.put(answer))
    code, answer = answers.get(timeout=ANSWER_S_MAX)
    finder.close()
    assert (code, decode_counts(answer)) == (OK, {"a": 2, "b": 1})


def test_a_cluster_that_is_away_or_unknown_and_a_missing_topic_are_no_answer_about_ids(config):
    driver = OneTopic([(1, "a")])
    driver.fault = ClusterUnreachable("kafka away")
    assert find(config, driver, 0, "a") == (int(Code.UNAVAILABLE), b"kafka away")
    assert find(config, OneTopic([]), 0, "a", cluster="other")[0] == Code.UNAVAILABLE
    code, sentence = find(config, OneTopic([]), 0, "a", topic="other")
    assert code == Code.UNAVAILABLE and b'topic "other": it does not exist' in sentence


@pytest.mark.parametrize(
    "stands_still, code, told",
    [(False, Code.TOO_LARGE, b"took too long"), (True, Code.UNAVAILABLE, b"does not answer")],
)
def test_a_search_that_is_too_long_is_told_apart_from_a_cluster_that_is_away(
    config, monkeypatch, stands_still, code, told
):
    driver = OneTopic([(number, "x") for number in range(1_000_000)])
    if stands_still:
        monkeypatch.setattr(driver, "poll", lambda wait_s: [])
    monkeypatch.setattr(finding, "SEARCH_S_MAX", 0.1)
    monkeypatch.setattr(finding, "SILENT_S", 0.05)
    found, sentence = find(config, driver, 0, "a")
    assert found == code and told in sentence


def test_question_and_answer_survive_their_bytes():
    assert decode_find(encode_find("main", "t", 5, ["a", "ü"])) == FindRequest("main", "t", 5, frozenset(("a", "ü")))
    assert decode_find(encode_find("main", "t", 5, ["a"], is_counted=True)).is_counted
    assert decode_found(encode_found({"a": 3})) == {"a": 3}


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", encode_find("main", "t", 5, [1]), encode_find("m", "t", "x", [])]
)
def test_bytes_that_are_no_question_are_refused(payload):
    with pytest.raises(PayloadError):
        decode_find(payload)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"found": 1}', b'{"found": {"a": "b"}}'])
def test_bytes_that_are_no_answer_are_refused(payload):
    with pytest.raises(PayloadError):
        decode_found(payload)
