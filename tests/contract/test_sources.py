"""The contract of all sources of the consumer proxy: one engine over its link, several broker groups, memory."""

import json
import time

import gevent
import pytest
from gevent.event import AsyncResult

from common.clock import SystemClock
from common.dead_letters import dead_letter_topic
from common.memory_broker import MemoryBroker
from common.placement import Placement, topic_hash
from consumer_proxy.sources.base import Failure, SourceDown
from consumer_proxy.sources.engine import EngineSource
from consumer_proxy.sources.groups import GroupsSource
from consumer_proxy.sources.memory import MemorySource
from engine.link import layout
from engine.link.acknowledgement import DONE, EXTEND, NO_ACKS, REJECT, RELEASE, RETRY, AckRange, AckRanges
from engine.link.pieces import AnswerPiece
from engine.link.pull import EARLIEST, LATEST, PullAnswer, PullQuestion, PullScope
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import encode_record, split_records
from engine.link.topic import encode_topics
from engine.server.native import NATIVE
from tests import link_bytes
from tests.contract.link_engine import KEY, Engine

QUEUES = 3
NAMES = ("east", "west")


class MemoryStore:
    """A source over a broker in memory."""

    def __init__(self, folder):
        self.broker = MemoryBroker()
        self.source = MemorySource(self.broker, SystemClock())

    def create(self, topic, queues=QUEUES):
        self.broker.create_topic(topic, queues)

    def append(self, topic, queue, *messages):
        records = [encode_record(message) for message in messages]
        self.broker.append(topic, queue, records, time.time_ns() // 1_000_000)

    def close(self):
        self.source.close()


class EngineStore:
    """A source over the link of one engine in this process."""

    def __init__(self, folder):
        self.engines = [Engine(folder / "engine", "native" if NATIVE else "twin")]
        self.source = EngineSource(self.engines[0].rpc)

    def create(self, topic, queues=QUEUES):
        for engine in self.engines:
            engine.topic(topic, queues)

    def append(self, topic, queue, *messages):
        engine = self.home(topic, queue)
        topic_id = json.loads(engine.ask(layout.TOPIC, encode_topics([(topic, QUEUES)]))[1])["topics"][0]["id"]
        batch = link_bytes.batch(topic_id, queue, list(messages))
        code, payload = engine.ask(layout.APPEND, link_bytes.append(link_bytes.MEMORY, batch))
        assert (code, link_bytes.results(payload)[0][0]) == (0, 0)

    def home(self, topic, queue):
        return self.engines[0]

    def close(self):
        self.source.close()
        for engine in self.engines:
            engine.close()


class GroupsStore(EngineStore):
    """A source over two broker groups."""

    def __init__(self, folder):
        form = "native" if NATIVE else "twin"
        self.engines = [Engine(folder / name, form) for name in NAMES]
        self.source = GroupsSource(KEY)
        self.source.follow(
            [(name, ("127.0.0.1", each.server.port)) for name, each in zip(NAMES, self.engines, strict=True)]
        )
        turn_until(lambda: all(not link.refusing for link in self.source.links))

    def home(self, topic, queue):
        return self.engines[Placement(NAMES).home(topic_hash(topic.encode()), queue)]


def turn_until(condition):
    with gevent.Timeout(10):
        while not condition():
            gevent.sleep(0.001)


class Site:
    """A store, and a consumer of the group `billing`."""

    def __init__(self, store):
        self.store, self.source = store, store.source

    def ask(
        self,
        *acks,
        topics=("orders",),
        group=b"billing",
        max_messages=32,
        wait_ms=0,
        invisible_ms=60_000,
        start=EARLIEST,
    ):
        """A pull under way: (its answer to come, its handle)."""
        scope = PullScope(group, dict.fromkeys(topics, QUEUES))
        ranges = AckRanges.of(acks) if acks else NO_ACKS
        answer = AsyncResult()
        question = PullQuestion(scope, max_messages, 1 << 20, wait_ms, invisible_ms, start, ranges)
        handle = self.source.pull(question, answer.set)
        assert not answer.ready(), "answered inside the asking call"
        return answer, handle

    def pull(self, *acks, **options):
        """(codes, pieces) of a pull."""
        answer = self.ask(*acks, **options)[0].get(timeout=10)
        assert isinstance(answer, PullAnswer), answer
        return answer.codes(), list(answer.pieces())

    def read(self, *positions, max_messages=32, wait_ms=0):
        answer = AsyncResult()
        self.source.read(ReadQuestion(positions, max_messages, 1 << 20, wait_ms), answer.set)
        found = answer.get(timeout=10)
        assert isinstance(found, ReadAnswer), found
        return found.reports, list(found.pieces())


@pytest.fixture(params=[MemoryStore, EngineStore, GroupsStore], ids=["memory", "engine", "groups"])
def site(request, tmp_path):
    store = request.param(tmp_path)
    store.create("orders")
    yield Site(store)
    store.close()


def messages(pieces):
    return [message for piece in pieces for _, message in split_records(piece.records)]


def ack(piece: AnswerPiece, verdict=DONE, delay_ms=-1, first=0, count=None, reason=b""):
    return AckRange(
        piece.token, piece.first_delta + first, piece.count if count is None else count, verdict, delay_ms, reason
    )


def test_stored_messages_are_leased_in_the_order_of_their_queue(site):
    site.store.append("orders", 0, b"a\0", b"b\0")
    site.store.append("orders", 0, b"c\0")
    _, pieces = site.pull()
    assert messages(pieces) == [b"a\0", b"b\0", b"c\0"]
    assert (pieces[0].first_offset, pieces[0].queue, pieces[0].attempt) == (0, 0, 1)
    assert site.pull() == ([], [])


def test_all_queues_are_delivered_and_a_pull_keeps_its_limit(site):
    for queue in range(QUEUES):
        site.store.append("orders", queue, *[b"%d\0" % queue] * 4)
    seen = []
    while pieces := site.pull(max_messages=5)[1]:
        found = messages(pieces)
        assert len(found) <= 5
        seen += found
    assert sorted(seen) == sorted(b"%d\0" % queue for queue in range(QUEUES) for _ in range(4))


def test_groups_get_the_same_messages_independently(site):
    site.store.append("orders", 1, b"a\0")
    assert messages(site.pull()[1]) == messages(site.pull(group=b"audit")[1]) == [b"a\0"]


def test_a_group_that_begins_at_the_end_gets_only_what_comes(site):
    site.store.append("orders", 0, b"old\0")
    assert site.pull(start=LATEST)[1] == []
    site.store.append("orders", 0, b"new\0")
    assert messages(site.pull(start=LATEST)[1]) == [b"new\0"]


def test_what_is_acknowledged_does_not_come_back_and_the_rest_does_when_its_lease_expires(site):
    site.store.append("orders", 0, b"a\0", b"b\0", b"c\0")
    (piece,) = site.pull(invisible_ms=1000)[1]
    assert site.pull(ack(piece, first=1, count=1), max_messages=0) == ([layout.OK], [])
    _, again = site.pull(wait_ms=5000)
    assert (messages(again), {each.attempt for each in again}) == ([b"a\0", b"c\0"], {2})


def test_a_pull_for_no_message_is_answered(site):
    site.store.append("orders", 0, b"a\0")
    assert site.pull(max_messages=0) == site.pull(max_messages=0, wait_ms=5000) == ([], [])
    assert messages(site.pull()[1]) == [b"a\0"]


def test_a_waiting_pull_is_answered_when_something_is_stored(site):
    answer, _ = site.ask(wait_ms=10_000)
    gevent.sleep(0.02)
    assert not answer.ready()
    site.store.append("orders", 2, b"a\0")
    assert messages(answer.get(timeout=5).pieces()) == [b"a\0"]


def test_a_waiting_pull_ends_empty_after_its_time(site):
    assert site.pull(wait_ms=50) == ([], [])


def test_a_cancelled_pull_is_answered_at_once_and_leases_nothing(site):
    answer, handle = site.ask(wait_ms=30_000)
    gevent.sleep(0.02)
    site.source.cancel(handle)
    assert list(answer.get(timeout=5).pieces()) == []
    site.store.append("orders", 0, b"a\0")
    assert messages(site.pull()[1]) == [b"a\0"]


@pytest.mark.parametrize("delay_ms", [0, 200])
def test_a_message_to_retry_comes_again_after_its_delay(site, delay_ms):
    site.store.append("orders", 0, b"a\0")
    (piece,) = site.pull()[1]
    started = time.monotonic()
    codes, again = site.pull(ack(piece, RETRY, delay_ms), wait_ms=5000)
    assert codes == [layout.OK]
    while not again:  # with several groups the codes may arrive before the message
        again = site.pull(wait_ms=5000)[1]
    assert (again[0].first_offset, again[0].attempt) == (0, 2)
    assert time.monotonic() - started >= (delay_ms - 1) / 1000  # the clock of leases counts whole milliseconds


def test_what_no_client_has_seen_comes_again_at_once_and_was_no_attempt(site):
    site.store.append("orders", 0, b"a\0")
    for _ in range(3):
        (piece,) = site.pull(wait_ms=5000)[1]
        assert piece.attempt == 1
        assert site.pull(ack(piece, RELEASE), max_messages=0)[0] == [layout.OK]
        assert site.pull(ack(piece, RELEASE), max_messages=0)[0] == [layout.STALE_RECEIPT]


def test_an_extended_lease_lasts_longer(site):
    site.store.append("orders", 0, b"a\0")
    (piece,) = site.pull(invisible_ms=1000)[1]
    assert site.pull(ack(piece, EXTEND, 30_000), max_messages=0)[0] == [layout.OK]
    assert site.pull(wait_ms=1500)[1] == []
    assert site.pull(ack(piece), max_messages=0)[0] == [layout.OK]


def test_a_rejected_message_becomes_a_dead_letter_of_its_group(site):
    site.store.append("orders", 0, b"\x0b\0\1\0\0\0\1o\0", b"b\0")
    (piece,) = site.pull()[1]
    assert site.pull(ack(piece, REJECT, first=0, count=1, reason=b"bad"), max_messages=0)[0] == [layout.OK]
    letters = dead_letter_topic("billing")
    deadline = time.monotonic() + 5
    found = []
    while not found and time.monotonic() < deadline:
        found = site.pull(topics=[letters], group=b"undertaker", wait_ms=100)[1]
    assert len(messages(found)) == 1
    assert site.pull()[1] == []


def test_a_receipt_is_stale_for_another_group_after_a_redelivery_and_when_it_was_never_made(site):
    site.store.append("orders", 0, b"a\0")
    (piece,) = site.pull(invisible_ms=1000)[1]
    assert site.pull(ack(piece), group=b"audit", max_messages=0)[0] == [layout.STALE_RECEIPT]
    assert site.pull(ack(piece, first=1), max_messages=0)[0] == [layout.STALE_RECEIPT]
    (again,) = site.pull(wait_ms=5000)[1]
    assert site.pull(ack(piece), max_messages=0)[0] == [layout.STALE_RECEIPT]
    assert site.pull(ack(again), max_messages=0)[0] == [layout.OK]


@pytest.mark.parametrize("verdict, delay_ms", [(5, -1), (RETRY, -2)])
def test_a_verdict_or_delay_that_is_none_is_invalid(site, verdict, delay_ms):
    site.store.append("orders", 0, b"a\0")
    (piece,) = site.pull()[1]
    assert site.pull(ack(piece, verdict, delay_ms), max_messages=0)[0] == [layout.INVALID]


def test_an_acknowledgement_without_an_answer_counts(site):
    site.store.append("orders", 0, b"a\0", b"b\0")
    (piece,) = site.pull()[1]
    site.source.acknowledge(
        PullScope(b"billing", {"orders": QUEUES}), AckRanges.of([ack(piece, RETRY, 0, first=1, count=1)])
    )
    deadline, again = time.monotonic() + 5, []
    while not again and time.monotonic() < deadline:
        again = site.pull(wait_ms=100)[1]
    assert messages(again) == [b"b\0"]


def test_reads_by_position_lease_nothing_and_report_bounds(site):
    site.store.append("orders", 0, *[b"%d\0" % number for number in range(6)])
    reports, pieces = site.read(
        ReadPosition("orders", 0, offset=2, end_offset=5),
        ReadPosition("orders", 0),
        ReadPosition("orders", 0, offset=7),
        ReadPosition("orders", QUEUES, offset=0),
        ReadPosition("nothing", 0, offset=0),
        ReadPosition("orders", 0, at_time_ms=-2),
    )
    assert [report.code for report in reports] == [0, 0, 107, 100, 102, 0]
    assert (reports[0].next_offset, reports[1].next_offset, reports[5].next_offset) == (5, None, 6)
    assert (reports[2].min_offset, reports[2].end_offset) == (0, 6)
    assert messages(pieces) == [b"2\0", b"3\0", b"4\0"]
    assert {piece.token for piece in pieces} == {bytes(48)}
    assert len(messages(site.pull()[1])) == 6


def test_a_read_begins_at_a_time(site):
    site.store.append("orders", 1, b"a\0")
    gevent.sleep(0.02)
    between_ms = time.time_ns() // 1_000_000
    gevent.sleep(0.02)
    site.store.append("orders", 1, b"b\0")
    assert messages(site.read(ReadPosition("orders", 1, at_time_ms=-1))[1]) == [b"a\0", b"b\0"]
    assert messages(site.read(ReadPosition("orders", 1, at_time_ms=between_ms))[1]) == [b"b\0"]


def test_a_read_waits_for_new_records(site):
    waiting = gevent.spawn(site.read, ReadPosition("orders", 1, offset=0), wait_ms=10_000)
    gevent.sleep(0.05)
    assert not waiting.ready()
    site.store.append("orders", 1, b"a\0")
    assert messages(waiting.get(timeout=5)[1]) == [b"a\0"]
    assert site.read(ReadPosition("orders", 2, offset=0), wait_ms=50)[1] == []


def test_open_questions_fail_and_new_ones_are_refused_once_the_source_is_closed(site):
    assert site.source.up
    answer, _ = site.ask(wait_ms=30_000)
    gevent.sleep(0.02)
    site.source.close()
    assert isinstance(answer.get(timeout=5), Failure)
    with pytest.raises(SourceDown):
        site.ask()
    assert not site.source.up
