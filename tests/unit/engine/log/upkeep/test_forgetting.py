"""Forgetting a topic: when it can be, what is left of it, and what a power cut at any moment leaves."""

import logging
from random import Random

import pytest
from machine import Machine

from engine.env.simulated import SimulatedEnv
from engine.link.claim import Claim, claim_batch
from engine.log.format import KIND_COUNTERS, KIND_TOPIC, parse_counter, parse_topic, split_records
from engine.log.read.retentions import OWN, Retention

HOUR = 3_600_000


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.fixture
def m(form):
    made = Machine(form, SimulatedEnv(), "/data")
    yield made
    made.close()


def put(m: Machine, name: str = "first", *bodies: bytes) -> None:
    ((code, _),) = m.log.append(m.batch(m.log.topic(name).id, 0, list(bodies or (b"x",))), 1, m.env.clock_ms)
    assert code == 0


def roll(m: Machine, segments: int = 1) -> None:
    """Fill segments with messages of another topic."""
    for _ in range(segments):
        base = m.log.appender.segment_base
        while m.log.appender.segment_base == base:
            put(m, "second", bytes(500))


def run(m: Machine, seconds: int = 60) -> None:
    """Let the clock and retention go on."""
    until = m.env.clock_ms + seconds * 1000
    while m.env.clock_ms < until:
        m.env.clock_ms += m.log.retention.step()


def expire(m: Machine) -> None:
    """Let retention delete all that is stored so far."""
    roll(m)
    m.env.clock_ms += 73 * HOUR
    roll(m)
    run(m)


def emptied(m: Machine, messages: int = 3):
    """A topic whose messages retention has deleted."""
    put(m, "first", *[b"old"] * messages)
    expire(m)
    return m.log.topic("first")


def test_a_topic_can_be_forgotten_when_no_segment_has_anything_of_it(m):
    topic = m.log.topic("first")
    assert m.log.end_if_empty(topic) == 0
    put(m)
    assert m.log.end_if_empty(topic) is None
    expire(m)
    assert m.log.end_if_empty(topic) == 1
    put(m, "second")
    assert m.log.end_if_empty(topic) == 1


def test_messages_that_only_a_purge_hides_keep_their_topic(m):
    put(m)
    roll(m)
    m.log.purge(1, {0: 1})
    assert m.log.bounds(1, 0) == (1, 1)
    assert m.log.end_if_empty(m.log.topic("first")) is None


def test_an_append_that_is_not_written_yet_keeps_its_topic(m):
    topic = emptied(m)
    m.log.appender.append(m.batch(topic.id, 3, [b"staged"]), 1, m.env.clock_ms, staged=True)
    assert m.log.bounds(topic.id, 3) == (0, 0)
    assert m.log.end_if_empty(topic) is None
    m.log.appender.commit_staged()
    assert m.log.bounds(topic.id, 3) == (0, 1)


def test_claims_of_ids_keep_their_topic_until_their_segment_is_deleted(m):
    topic = emptied(m)
    claim = Claim("first", 4, "id", 2, 1000)
    m.log.for_timers.append(claim_batch(topic.id, claim, 2), 1)
    assert m.log.end_if_empty(topic) is None
    roll(m)
    assert m.log.end_if_empty(topic) is None
    expire(m)
    assert m.log.end_if_empty(topic) == 3


def test_the_topic_with_the_highest_id_stays(m):
    newest = m.log.create_topics([("third", 1)])[0]
    assert m.log.end_if_empty(newest) is None
    m.log.create_topics([("fourth", 1)])
    assert m.log.end_if_empty(newest) == 0


def test_a_topic_whose_own_retention_is_kept_stays(m):
    class Defined:
        generation, is_known = 1, True

        def of(self, name):
            return Retention(HOUR, 0, OWN) if name == "first" else Retention()

    m.log.retentions.policy = Defined()
    while m.log.retentions.keep_some():
        pass
    m.log.create_topics([("last", 1)])
    assert m.log.end_if_empty(m.log.topic("first")) is None
    assert m.log.end_if_empty(m.log.topic("second")) == 0


def assert_unknown(m: Machine, old) -> None:
    assert (m.log.topic_by_id(old.id), m.log.topic(old.name)) == (None, None)
    assert old.name not in [topic.name for topic in m.log.topics()]
    assert m.log.append(m.batch(old.id, 0, [b"late"]), 1, m.env.clock_ms) == [(102, 0)]


def test_a_forgotten_topic_is_unknown_and_comes_back_under_another_id_with_offsets_from_0(m):
    old = emptied(m)
    m.log.forget_topic(old)
    assert_unknown(m, old)
    m.reopen()
    assert_unknown(m, old)
    new = m.log.create_topics([("first", 2)])[0]
    assert new.id > old.id and new.queues == 2 and m.log.bounds(new.id, 0) == (0, 0)
    put(m)
    m.reopen()
    assert m.log.topic("first") == new and m.bodies(new.id, 0) == [b"x"]
    assert m.log.append(m.batch(old.id, 0, [b"late"]), 1, m.env.clock_ms) == [(102, 0)]


def test_what_is_kept_of_a_topic_goes_with_it(m):
    topic = emptied(m)
    put(m, "first", b"a", b"b")
    m.log.purge(topic.id, {0: 4})
    m.log.create_topics([("first", 6)])
    expire(m)
    m.log.forget_topic(m.log.topic("first"))
    assert [key for key, _ in m.log.progress(b"\0") if key.startswith((b"\0grown", b"\0purged"))] == []
    assert m.log.start_offsets.of(topic.id, 0) == 0
    assert list(m.log._view.segments_of_topic(topic.id)) == []


def test_the_queues_of_a_topic_stay_known_until_its_end_is_durable(m, monkeypatch):
    topic = emptied(m)
    waiting = []
    monkeypatch.setattr(
        m.log.writer.durability, "when_durable", lambda position, callback: waiting.append((position, callback))
    )
    m.log.forget_topic(topic)
    assert list(m.log._view.segments_of_topic(topic.id)) != []
    ((position, callback),) = waiting
    assert position == m.log.end_position
    callback()
    assert list(m.log._view.segments_of_topic(topic.id)) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_leaves_the_topic_with_its_offsets_or_none(form, seed):
    m = Machine(form, SimulatedEnv(), "/data")
    old = emptied(m, messages=5)
    m.durable()
    m.log.forget_topic(old)
    if seed % 2:
        m.log.create_topics([("first", 1)])
    m.crash(Random(seed))
    found = m.log.topic("first")
    if found is not None and found.id == old.id:
        assert m.log.bounds(old.id, 0) == (5, 5)
        assert m.append(old.id, 0, b"next") == 5
    else:
        assert m.log.topic_by_id(old.id) is None
        assert m.log.create_topics([("first", 1)])[0].id > old.id
    m.close()


def records(m: Machine, kind: int) -> list[bytes]:
    """Payloads of the control records of a kind in all segments."""
    found: list[bytes] = []
    for segment in [m.log.segments.active, *map(m.log.segments.sealed.get, m.log.segments.sealed.bases)]:
        for _, at, size, _, _ in segment.source().entries(0, kind):
            found += split_records(segment.file.read_at(size, at)[48:])
    return found


def forgetting_records(m: Machine) -> int:
    """Number of records in the files that forget a topic."""
    return sum(parse_topic(payload)[2] == 0 for payload in records(m, KIND_TOPIC))


def test_the_counters_of_a_forgotten_topic_are_not_relocated(m):
    old = emptied(m)
    assert old.id in {parse_counter(payload)[0] for payload in records(m, KIND_COUNTERS)}
    m.log.forget_topic(old)
    expire(m)
    expire(m)
    assert old.id not in {parse_counter(payload)[0] for payload in records(m, KIND_COUNTERS)}


@pytest.mark.parametrize("rebuilt", [False, True])
def test_no_record_of_a_forgotten_topic_is_relocated_and_the_next_id_is_still_known(m, rebuilt):
    old = emptied(m)
    put(m, "first")
    expire(m)
    m.log.forget_topic(m.log.topic("first"))
    assert forgetting_records(m) == 1
    expire(m)
    assert forgetting_records(m) == 0
    if rebuilt:
        m.close()
        m.env.stores.clear()
        m.open()
    else:
        m.reopen()
    assert m.log.topic_by_id(old.id) is None and m.log.topic("first") is None
    assert m.log.topic("second").id == 2
    assert m.log.create_topics([("first", 1)])[0].id == 3
