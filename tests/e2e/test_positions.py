"""Readers that keep their own offsets, against a real engine and proxy: every row of what a position may ask."""

import time

import pytest

from common.config import open_store
from common.contract import Code, Position
from tests.e2e.pull_parts import Site
from tests.waiting import until

BODY = 300 << 10
STORED = 10


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("positions"))
    store = open_store(made.config)
    for name, fields in {"kept": {}, "cut": {"retention_bytes": 1 << 20}, "large": {}, "fresh": {}}.items():
        store.put("topic", name, {"queues": 1, "durability": "memory", **fields}, 0)
    store.close()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(site):
    return site.client(site.proxy())


@pytest.fixture(scope="module")
def link(site):
    made = site.link()
    yield made
    made.close()


@pytest.fixture(scope="module")
def kept(link):
    """Topic `kept` with two halves of five messages; returns a moment between them, as Unix milliseconds."""
    link.append("kept", [b"%d" % number for number in range(5)], queues=1)
    between_ms = time.time_ns() // 1_000_000 + 1
    until(lambda: time.time_ns() // 1_000_000 >= between_ms + 1, "a moment between the halves")
    link.append("kept", [b"%d" % number for number in range(5, STORED)], queues=1)
    return between_ms


def read(client, topic="kept", messages=100, max_bytes=None, wait_ms=None, queue=0, **fields):
    """(report, bodies) of one position."""
    response = client.pull(
        group="audit", positions=[Position(topic, queue, **fields)], max_messages=messages, max_bytes=max_bytes,
        wait_ms=wait_ms,
    )  # fmt: skip
    assert response.code == Code.OK, response.error
    (report,) = response.positions
    assert all(each.receipt == b"" and each.attempt == 0 for each in response.deliveries)
    return report, [each.message.body for each in response.deliveries]


@pytest.mark.parametrize(
    ("fields", "first", "end"),
    [
        ({"offset": 0}, 0, STORED),
        ({"offset": 4}, 4, STORED),
        ({"offset": 3, "end_offset": 7}, 3, 7),
        ({"offset": 3, "end_offset": 3}, 3, 3),
        ({"offset": 7, "end_offset": 3}, 7, 7),
        ({"offset": 8, "end_offset": 10**12}, 8, STORED),
        ({"offset": STORED}, STORED, STORED),
        ({"at_time_ms": -1}, 0, STORED),
        ({"at_time_ms": -2}, STORED, STORED),
        ({"at_time_ms": 0}, 0, STORED),
        ({"at_time_ms": 1 << 62}, STORED, STORED),
    ],
)
def test_a_position_reads_exactly_what_it_names(client, kept, fields, first, end):
    report, bodies = read(client, **fields)
    assert bodies == [b"%d" % number for number in range(first, end)]
    assert (report.code, report.next_offset, report.min_offset, report.end_offset) == (Code.OK, end, 0, STORED)


def test_a_moment_names_the_first_message_stored_since(client, kept):
    assert read(client, at_time_ms=kept)[1][0] == b"5"


def test_a_position_that_names_neither_only_reports(client, kept):
    report, bodies = read(client)
    assert (report.code, report.next_offset, report.min_offset, report.end_offset) == (Code.OK, None, 0, STORED)
    assert bodies == []


def test_the_same_range_reads_the_same_twice_and_no_group_moves(client, kept):
    assert read(client, offset=2, end_offset=9) == read(client, offset=2, end_offset=9)
    first = client.pull(group="audit", topics=["kept"], max_messages=1)
    assert [each.offset for each in first.deliveries] == [0]


@pytest.mark.parametrize("fields", [{"offset": STORED + 1}, {"offset": 10**9}, {"offset": 2**63 - 1}])
def test_past_the_end_the_bounds_are_told(client, kept, fields):
    report, bodies = read(client, **fields)
    assert (report.code, report.min_offset, report.end_offset, bodies) == (Code.OFFSET_OUT_OF_RANGE, 0, STORED, [])
    assert report.error


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"offset": -1}, "Position.offset"),
        ({"offset": -(2**63)}, "Position.offset"),
        ({"offset": 0, "end_offset": -1}, "Position.end_offset"),
        ({"at_time_ms": -3}, "Position.at_time_ms"),
        ({"offset": 6, "at_time_ms": -1}, "Position: offset and at_time_ms"),
        ({"queue": 1, "offset": 0}, "Position.queue"),
        ({"queue": -1, "offset": 0}, "Position.queue"),
    ],
)
def test_a_position_that_makes_no_sense_is_refused_with_its_field(client, kept, fields, word):
    report, bodies = read(client, **fields)
    assert (report.code, bodies) == (Code.INVALID, [])
    assert report.error.startswith(word)


@pytest.mark.parametrize("messages", [-1, 10_001, 10**9])
def test_a_billion_messages_are_refused_before_anything_is_read(client, kept, messages):
    response = client.pull(group="audit", positions=[Position("kept", 0, offset=0)], max_messages=messages)
    assert response.code == Code.INVALID
    assert response.error.startswith("PullRequest.max_messages")


def test_no_messages_wanted_none_read(client, kept):
    report, bodies = read(client, messages=0, offset=0)
    assert (report.code, report.next_offset, bodies) == (Code.OK, 0, [])


def test_a_read_gives_no_more_bytes_than_asked_but_always_the_first_message(client, link):
    for number in range(4):
        link.append("large", [bytes([number]) * BODY], queues=1)
    report, bodies = read(client, "large", max_bytes=1 << 20, offset=0)
    assert (len(bodies), report.next_offset) == (3, 3)
    report, bodies = read(client, "large", max_bytes=1, offset=3)
    assert (len(bodies), report.next_offset) == (1, 4)


def test_what_retention_took_is_told_with_the_earliest_that_is_left(client, link):
    for number in range(8):
        link.append("cut", [bytes([number]) * BODY], queues=1)
    report = until(lambda: (found := read(client, "cut")[0]).min_offset and found, "the topic's retention takes effect")
    gone, bodies = read(client, "cut", offset=0)
    assert (gone.code, gone.min_offset, bodies) == (Code.OFFSET_OUT_OF_RANGE, report.min_offset, [])
    again, bodies = read(client, "cut", max_bytes=12 << 20, offset=gone.min_offset)
    assert (again.code, again.next_offset, len(bodies)) == (Code.OK, 8, 8 - gone.min_offset)
    assert read(client, "cut", at_time_ms=-1, messages=1)[0].next_offset == gone.min_offset + 1


def test_a_topic_without_a_message_reads_as_empty(client):
    assert read(client, "fresh", offset=0)[0].end_offset == 0
    assert read(client, "fresh", offset=1)[0].code == Code.OFFSET_OUT_OF_RANGE
