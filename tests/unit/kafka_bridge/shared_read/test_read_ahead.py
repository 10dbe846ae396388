"""The bound of what waits in the engine for one group and partition."""

import random

from engine.client.backlog import QueueBacklog
from kafka_bridge.copy_in.core import BATCH_BYTES_MAX
from kafka_bridge.shared_read.read_ahead import BYTES_MAX, FETCH_RECORDS_MAX, MESSAGES_MAX, ReadAhead


def test_there_is_no_room_before_the_backlog_is_known():
    ahead = ReadAhead()
    assert not ahead.has_room
    ahead.see(QueueBacklog(0, 0))
    assert ahead.has_room


def test_a_backlog_of_before_counts():
    ahead = ReadAhead()
    ahead.see(QueueBacklog(MESSAGES_MAX, 10))
    assert not ahead.has_room
    ahead.see(QueueBacklog(0, 0))
    assert ahead.has_room and (ahead.messages, ahead.size_bytes) == (0, 0)


def test_large_messages_fill_it_by_their_bytes_until_they_are_acknowledged():
    ahead = ReadAhead()
    ahead.see(QueueBacklog(0, 0))
    parts = 0
    while ahead.has_room:
        ahead.add(1, BATCH_BYTES_MAX)
        parts += 1
    assert parts == BYTES_MAX // BATCH_BYTES_MAX
    ahead.see(QueueBacklog(parts - 1, 5))
    assert ahead.has_room, "the oldest one is acknowledged"


def test_never_more_than_the_bound_waits_whatever_is_acknowledged_meanwhile():
    choice = random.Random(7)
    for _ in range(50):
        ahead, waiting = ReadAhead(), 0
        for _ in range(200):
            ahead.see(QueueBacklog(waiting, 100 * waiting))
            while ahead.has_room and choice.random() < 0.9:
                count = choice.randint(1, FETCH_RECORDS_MAX)
                ahead.add(count, 100 * count)
                waiting += count
                assert waiting <= MESSAGES_MAX
            waiting -= choice.randint(0, waiting)
        ahead.see(QueueBacklog(0, 0))
        assert ahead.has_room
