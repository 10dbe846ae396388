"""What every target of the send path does: one in memory, and one over two of them with a repair journal."""

import time

import gevent
import pytest

from common.config import ConfigView
from common.config.definitions import TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, encode_struct
from common.ids import IdSource, show_id
from common.keyhash import queue_of
from common.memory_broker import MemoryBroker
from engine.client.durability import FSYNC, number_of
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.journaling import Journaling
from producer_proxy.targets.base import MessageSlice
from producer_proxy.targets.memory import MemoryTarget
from producer_proxy.targets.topics import Targets, Topics
from tests.unit.producer_proxy.journal.side import Side, SideHomes

QUEUES = 4
MEMORY = number_of("memory")


def now_ms():
    return int(time.time() * 1000)


class TargetDesk:
    """Topics `t` and `u` at the target under test; the store that answers is always a MemoryBroker."""

    def __init__(self, form, directory) -> None:
        config = MemoryConfigStore()
        secondary = "kafka:main" if form == "dual" else ""
        for name in ("t", "u"):
            config.put("topic", name, TopicDefinition(name, queues=QUEUES, secondary=secondary).to_value(), 0)
        self.view, self.broker = ConfigView(config), MemoryBroker()
        self.journaling = Journaling(RepairJournal(directory, now_ms) if form == "dual" else None, now_ms).over(
            self.view
        )
        home = MemoryTarget(self.broker, now_ms)
        self.targets = Targets(home, kafka=SideHomes(Side("kafka:main")), duals=self.journaling)
        self.topics = Topics(self.view, self.targets)
        self.journaling.start(self.targets)
        self._assign = IdSource(now_ms).next

    def slices(self, *messages):
        routes = self.topics.find([each.topic for each in messages])
        self.target = routes[messages[0].topic].target
        return [
            MessageSlice(
                routes[each.topic].destination, routes[each.topic].binding_of(_Walked(each)),
                None if each.id else self._assign(), encode_struct(each),
            )
            for each in messages
        ]  # fmt: skip

    def submit(self, *messages, durability=MEMORY):
        """The outcomes, and the slices; fails when they are not told exactly once."""
        slices, told = self.slices(*messages), []
        taken = self.target.submit(self.target.served_as(durability), slices, told.append)
        with gevent.Timeout(10, AssertionError("no outcomes")):
            while not told:
                gevent.sleep(0.001)
        assert taken and len(told) == 1
        return told[0], slices

    def close(self) -> None:
        self.journaling.stop()
        self.targets.close()
        self.view.close()


class _Walked:
    """The fields of a walked message by which it is bound to a queue."""

    def __init__(self, message: Message) -> None:
        self.key, self.id = message.key, message.id


@pytest.fixture(params=["memory", "dual"])
def desk(request, tmp_path):
    made = TargetDesk(request.param, tmp_path / "journal")
    yield made
    made.close()


def test_each_message_has_one_outcome_in_its_place_with_the_queue_of_its_key(desk):
    keys = [f"k{number % 5}" for number in range(20)]
    outcomes, _ = desk.submit(*[Message(topic="tu"[number % 2], key=key) for number, key in enumerate(keys)])
    assert [each[0] for each in outcomes] == [Code.OK] * 20
    assert [each[1] for each in outcomes] == [queue_of(key.encode(), QUEUES) for key in keys]


def test_messages_of_a_queue_lie_in_the_order_of_their_submission(desk):
    offsets = [desk.submit(Message(topic="t", key="a"), Message(topic="t", key="a"))[0] for _ in range(5)]
    assert [each[2] for pair in offsets for each in pair] == list(range(10))


def test_messages_without_a_key_go_to_any_queue_and_their_outcome_names_it(desk):
    outcomes, _ = desk.submit(*[Message(topic="t") for _ in range(6)])
    assert {each[0] for each in outcomes} == {Code.OK} and all(0 <= each[1] < QUEUES for each in outcomes)


@pytest.mark.parametrize("durability", [MEMORY, FSYNC])
def test_a_class_is_served_as_one_that_serves_itself(desk, durability):
    desk.slices(Message(topic="t"))
    served = desk.target.served_as(durability)
    assert desk.target.served_as(served) == served


def test_a_destination_has_the_attributes_that_the_send_path_reads(desk):
    (made,) = desk.slices(Message(topic="t"))
    found = made.destination
    assert (found.name if isinstance(found.name, str) else found.name.decode(), found.queues) == ("t", QUEUES)
    assert found.durability and found.grade is not None
    assert desk.target.admits(MEMORY, found, b"a", 0, 1) is True


def test_what_a_target_cannot_do_is_no_feature_of_it(desk):
    desk.slices(Message(topic="t"))
    assert desk.target.features == frozenset() and desk.target.up and desk.target.health() is True


def test_an_id_is_shown_as_the_sender_knows_it(desk):
    _, slices = desk.submit(Message(topic="t", key="a"), Message(topic="t", key="a", id="own"))
    assert slices[1].assigned_id is None and len(show_id(slices[0].assigned_id)) == 32


def test_the_target_becomes_idle(desk):
    desk.submit(Message(topic="t"))
    with gevent.Timeout(10, AssertionError("never idle")):
        while not desk.target.idle:
            gevent.sleep(0.001)
