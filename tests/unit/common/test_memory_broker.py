import pytest

from common.memory_broker import MemoryBroker


@pytest.fixture
def broker():
    made = MemoryBroker()
    made.create_topic("orders", 2)
    return made


def test_records_are_read_from_an_offset_on(broker):
    assert broker.append("orders", 1, [b"a", b"b"], 10) == 0
    assert broker.append("orders", 1, [b"c"], 20) == 2
    assert broker.read("orders", 1, 1, 5) == [(1, 10, b"b"), (2, 20, b"c")]
    assert broker.read("orders", 1, 0, 1) == [(0, 10, b"a")]
    assert broker.read("orders", 1, 3, 5) == broker.read("orders", 0, 0, 5) == []
    assert (broker.end_offset("orders", 1), broker.end_offset("orders", 0)) == (3, 0)


def test_a_topic_gets_queues_and_loses_none(broker):
    broker.append("orders", 1, [b"a"], 10)
    broker.create_topic("orders", 4)
    broker.create_topic("orders", 1)
    assert (broker.queues("orders"), broker.queues("nothing"), broker.topics()) == (4, None, ["orders"])
    assert broker.end_offset("orders", 1) == 1
    with pytest.raises(ValueError, match="at least 1"):
        broker.create_topic("none", 0)


def test_times_of_a_queue_never_decrease_and_lead_to_offsets(broker):
    for stored_at_ms in (10, 30, 20):
        broker.append("orders", 0, [b"x"], stored_at_ms)
    assert [stored_at_ms for _, stored_at_ms, _ in broker.read("orders", 0, 0, 9)] == [10, 30, 30]
    assert [broker.offset_at_time("orders", 0, at_ms) for at_ms in (0, 10, 11, 30, 31)] == [0, 0, 1, 1, 3]


def test_callbacks_are_called_after_each_append_of_records(broker):
    heard = []
    broker.on_append(lambda topic, queue: heard.append((topic, queue, broker.end_offset(topic, queue))))
    broker.append("orders", 1, [b"a", b"b"], 10)
    broker.append("orders", 1, [], 10)
    assert heard == [("orders", 1, 2)]
    with pytest.raises(IndexError):
        broker.append("orders", 2, [b"a"], 10)
    with pytest.raises(KeyError):
        broker.append("nothing", 0, [b"a"], 10)
