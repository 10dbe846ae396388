"""Copiers over a Kafka cluster in memory and a real engine: what is stored, and what a copy stands still for."""

import signal
import threading
from contextlib import closing

import pytest

from common.clock import SystemClock
from common.config import ConfigView, open_store
from common.config.memory_store import MemoryConfigStore
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.errors import ClusterUnreachable
from common.kafka.records import Partition
from common.placement import Placement, topic_hash
from engine.client import copied
from engine.client.admin import AdminClient, AdminError
from engine.client.blocking import LeadingLink
from engine.link.codes import SOURCE_MOVED
from engine.link.copy import SourceState
from engine.link.operations import READ
from engine.link.proof import KAFKA_BRIDGE_ROLE
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import read_record
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.copy_in.copies import InCopies
from kafka_bridge.copy_in.engine_queues import PASSED_REASON, START_REASON, EngineQueues
from kafka_bridge.source_identity import source_of
from tests.e2e.test_engine_process import ADMIN_SECRET, KEY, EngineProcess
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaDriver, MemoryKafkaReader, StoredKafkaRecord
from tests.waiting import until

FIRST, SECOND = [b"%d" % number for number in range(50)], [b"%d" % number for number in range(50, 80)]


class CopyDesk:
    """An engine, a Kafka with topic `orders`, and bridges' copies by one configuration."""

    def __init__(self, engine: EngineProcess, topic: str, settings: dict, partitions: int = 2) -> None:
        self.engine, self.topic, self.kafka, self.store = engine, topic, MemoryKafka(), MemoryConfigStore()
        self.kafka.create(topic, partitions)
        self.groups: dict[str, tuple] | None = None  # None: the engine alone
        self.store.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
        self.store.put("topic", topic, {"queues": partitions, "durability": "memory", "id_window_ms": 0, **settings}, 0)
        self.bridges: list[InCopies] = []

    def bridge(self, store=None, is_away=False) -> InCopies:
        """One more bridge; it shares the claims of `store`, which `is_away` before the first copier begins."""
        store = store or self.store
        tools = CopyTools(
            store,
            SystemClock(),
            lambda: self.groups or {"main": (self.engine.address,)},
            self.connect,
            lambda cluster: MemoryKafkaDriver(self.kafka),
        )
        view = ConfigView(store)
        if is_away:
            store.set_available(False)
        self.bridges.append(InCopies(view, tools))
        return self.bridges[-1]

    @staticmethod
    def connect(name: str, addresses) -> LeadingLink:
        return LeadingLink(addresses, KEY, KAFKA_BRIDGE_ROLE)

    def link(self) -> AdminClient:
        return AdminClient(self.engine.address, ADMIN_SECRET)

    def bodies(self, queue: int) -> list[bytes]:
        """Of the queue's messages in the engine; copied ones end as `MemoryKafka.add` has made them."""
        with self.link() as link:
            return bodies_of(link, self.topic, queue)

    def wait_for(self, queue: int, bodies: list[bytes]) -> None:
        until(lambda: self.has_topic() and self.bodies(queue) == bodies, f"{len(bodies)} messages of {queue}", 20.0)

    def has_topic(self) -> bool:
        with self.link() as link:
            return any(each["name"] == self.topic for each in link.ask("topics")["topics"])

    def wait_standstill(self, bridge: InCopies, text: str) -> None:
        """Wait until this is in the sentence of the only standstill."""

        def sentences():
            return [each.sentence for copier in bridge.all for each in copier.standstills]

        until(lambda: len(found := sentences()) == 1 and text in found[0], f"the standstill {text}", 20.0)

    def accept(self, queue: int, start: int) -> None:
        source = source_of("memory", self.kafka_topic(), queue)
        with self.link() as link:
            (state,) = copied.states(link, [(self.topic, queue)])
            copied.accept(link, self.topic, queue, source, start=start, replaces=state.number, reason="a test")

    def state(self, queue: int) -> SourceState:
        with self.link() as link:
            (found,) = copied.states(link, [(self.topic, queue)])
        return found

    def own_mark(self, value: bytes) -> tuple[str, bytes]:
        """The header of a record of this value and key `k` that the reverse copy has made of the topic's message."""
        with self.link() as link:
            log_id = link.hello.log_id
        return COPY_HEADER, CopyMark(log_id, self.state(0).topic_id, 0, 9, content_hash(b"k", value)).encode()

    def kafka_topic(self):
        return MemoryKafkaDriver(self.kafka).admin(None).topics([self.topic])[self.topic]

    def close(self) -> None:
        for each in self.bridges:
            each.close(5)


def bodies_of(link, topic: str, queue: int) -> list[bytes]:
    """Of all messages of a queue that were copied from `MemoryKafka`, or from a plain producer."""
    found: list[bytes] = []
    while True:
        question = ReadQuestion([ReadPosition(topic, queue, offset=len(found))], 1000, 1 << 20)
        _, payload = link.call(READ, question.encode())
        before = len(found)
        for piece in ReadAnswer.decode(payload).pieces() if payload[:1] == b"\0" or payload else []:
            at = 0
            while at < len(piece.records):
                record, at = read_record(piece.records, at)
                found.append(body_of(record.message))
        if len(found) == before:
            return found


def body_of(message: bytes) -> bytes:
    """The second field of a message whose first one is its topic."""
    at = 7 + int.from_bytes(message[3:7], "big")
    assert message[at : at + 3] == b"\x0b\x00\x02"
    return message[at + 7 : at + 7 + int.from_bytes(message[at + 3 : at + 7], "big")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = EngineProcess(tmp_path_factory.mktemp("copier") / "engine")
    yield made
    made.end(signal.SIGKILL)


@pytest.fixture
def desk(engine, request):
    made = CopyDesk(engine, f"t{abs(hash(request.node.name)) % 10**9}", {"home": "kafka:main"})
    yield made
    made.close()


def test_records_are_copied_into_the_queues_of_their_partitions_in_order(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.kafka.add(desk.topic, 1, b"other")
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    desk.wait_for(1, [b"other"])
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)
    (copier,) = bridge.all
    until(lambda: copier.stored == 81, "the count of records")
    assert copier.is_claimed and copier.standstills == [] and bridge.health() == {f"copy of {desk.topic}": True}


def test_a_bridge_that_starts_again_goes_on_where_the_engine_is(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    first = desk.bridge()
    desk.wait_for(0, FIRST)
    first.close(5)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.bridge()
    desk.wait_for(0, FIRST + SECOND)


def test_two_bridges_without_common_claims_store_each_record_once(desk):
    other = MemoryConfigStore()
    for kind, name in (("kafka", "main"), ("topic", desk.topic)):
        other.put(kind, name, desk.store.get(kind, name).value, 0)
    bridges = desk.bridge(), desk.bridge(other)
    for at in range(0, 50, 5):
        desk.kafka.add(desk.topic, 0, *FIRST[at : at + 5])
        desk.wait_for(0, FIRST[: at + 5])
    assert sum(copier.stored for bridge in bridges for copier in bridge.all) == 50


def test_of_two_bridges_with_one_configuration_one_copies_and_the_other_one_takes_over(desk, tmp_path):
    stores = [open_store((tmp_path / "config").as_uri()) for _ in range(2)]
    for kind, name in (("kafka", "main"), ("topic", desk.topic)):
        stores[0].put(kind, name, desk.store.get(kind, name).value, 0)
    first = desk.bridge(stores[0])
    until(lambda: any(each.is_claimed for each in first.all), "the claim")
    second = desk.bridge(stores[1])
    until(lambda: second.all, "the second bridge")
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.wait_for(0, FIRST)
    assert [(each.is_claimed, each.standstills, each.stored) for each in second.all] == [(False, [], 0)]
    first.close(5)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)
    until(lambda: second.all[0].stored == 30, "the records that the second bridge has copied")


def test_a_copier_that_begins_while_another_one_goes_on_does_not_take_it_for_a_loss(desk, monkeypatch):
    """The state of the queue is asked for first: the end that Kafka had before may be passed meanwhile."""
    desk.kafka.add(desk.topic, 0, *FIRST)
    first = desk.bridge()
    desk.wait_for(0, FIRST)
    ask, asked = EngineQueues.states, []

    def states_after_a_while(queues, group, numbers):
        if not asked:
            asked.append(numbers)
            desk.kafka.add(desk.topic, 0, b"more")
            until(lambda: desk.bodies(0)[-1:] == [b"more"], "the other copier goes on")
        return ask(queues, group, numbers)

    monkeypatch.setattr(EngineQueues, "states", states_after_a_while)
    other = MemoryConfigStore()
    for kind, name in (("kafka", "main"), ("topic", desk.topic)):
        other.put(kind, name, desk.store.get(kind, name).value, 0)
    second = desk.bridge(other)
    until(lambda: asked and desk.bodies(0)[-1:] == [b"more"], "the question of the second copier")
    first.close(5)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, [*FIRST, b"more", *SECOND])
    assert second.all[0].standstills == []


def test_copies_begin_and_go_on_while_the_configuration_store_is_away(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    bridge = desk.bridge(is_away=True)
    desk.wait_for(0, FIRST)
    desk.store.set_available(True)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)
    desk.store.set_available(False)
    desk.kafka.add(desk.topic, 0, b"last")
    desk.wait_for(0, [*FIRST, *SECOND, b"last"])
    assert bridge.all[0].standstills == []


def test_a_cluster_that_is_away_is_a_standstill_until_it_is_back(desk):
    desk.kafka.fault = ClusterUnreachable('kafka "main": no broker answers')
    bridge = desk.bridge()
    desk.wait_standstill(bridge, 'kafka "main": no broker answers')
    (note,) = bridge.health().values()
    assert note.startswith("stands still since ") and "no broker answers" in note
    desk.kafka.fault = None
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.wait_for(0, FIRST)
    until(lambda: bridge.all[0].standstills == [], "no standstill")


def test_a_topic_that_was_made_again_is_copied_after_an_operators_word(desk, monkeypatch):
    monkeypatch.setattr("kafka_bridge.copy_in.session.LOOK_ALL_S", 0.05)
    desk.kafka.add(desk.topic, 0, *FIRST)
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    desk.kafka.create(desk.topic, 1)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_standstill(bridge, "was deleted and made again")
    desk.accept(0, 0)
    desk.wait_for(0, FIRST + SECOND)
    until(lambda: bridge.all[0].standstills == [], "no standstill")


def test_records_that_kafka_deleted_before_they_were_copied_stop_the_copy(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    first = desk.bridge()
    desk.wait_for(0, FIRST)
    first.close(5)
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.kafka.starts[Partition(desk.topic, 0)] = 60
    desk.wait_standstill(desk.bridge(), "up to 10 records are lost")
    desk.accept(0, 60)
    desk.wait_for(0, FIRST + SECOND[10:])


def test_what_kafka_deleted_after_it_was_read_and_had_nothing_to_copy_is_no_loss(desk, monkeypatch):
    monkeypatch.setattr("kafka_bridge.copy_in.session.PASS_S", 0.05)
    desk.kafka.add(desk.topic, 0, *FIRST)
    first = desk.bridge()
    desk.wait_for(0, FIRST)
    desk.kafka.add(desk.topic, 0, b"own", headers=[desk.own_mark(b"own")])
    until(lambda: first.all[0].skipped == 1, "the record that came from the topic itself")
    desk.kafka.starts[Partition(desk.topic, 0)] = len(FIRST) + 1
    until(lambda: desk.state(0).next == len(FIRST) + 1, "the position beyond what is deleted", 20.0)
    first.close(5)
    second = desk.bridge()
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)
    assert second.all[0].standstills == []
    assert [each.reason for each in desk.state(0).sources] == [START_REASON, PASSED_REASON]


def test_a_copier_that_was_overtaken_passes_over_nothing(desk, monkeypatch):
    monkeypatch.setattr("kafka_bridge.copy_in.session.PASS_S", 0.05)
    desk.kafka.add(desk.topic, 0, *FIRST)
    with closing(EngineQueues(desk.topic, 1, {"main": (desk.engine.address,)}, desk.connect)) as queues:
        bridge = desk.bridge()
        desk.wait_for(0, FIRST)
        bridge.close(5)
        with pytest.raises(AdminError) as refused:
            queues.accept("main", 0, source_of("memory", desk.kafka_topic(), 0), 45, 1, PASSED_REASON, 40)
        assert refused.value.code == SOURCE_MOVED
    assert desk.state(0).next == len(FIRST)


def test_an_end_below_what_was_copied_stops_the_copy_also_when_it_grows_again(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    del desk.kafka.partitions[desk.topic][0][40:]
    desk.wait_standstill(bridge, "it ends at 40, but was copied up to 50")
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.kafka.add(desk.topic, 1, b"another partition goes on")
    desk.wait_for(1, [b"another partition goes on"])
    assert desk.bodies(0) == FIRST
    desk.wait_standstill(bridge, "it ends at 40")
    desk.accept(0, 40)
    desk.wait_for(0, FIRST + SECOND)


def put_back(desk, kept: int, *values: bytes) -> None:
    """Kafka has its first records alone, and others at the offsets of those that it has lost."""
    del desk.kafka.partitions[desk.topic][0][kept:]
    desk.kafka.add(desk.topic, 0, *values)


def test_a_kafka_that_was_put_back_and_filled_again_while_no_bridge_ran_stops_the_copy(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.kafka.add(desk.topic, 1, b"other")
    first = desk.bridge()
    desk.wait_for(0, FIRST)
    first.close(5)
    put_back(desk, 40, *SECOND)
    desk.kafka.add(desk.topic, 1, b"another partition goes on")
    bridge = desk.bridge()
    desk.wait_standstill(bridge, "partition 0 offset 49: it has not the record that was copied from there")
    desk.wait_for(1, [b"other", b"another partition goes on"])
    assert desk.bodies(0) == FIRST
    desk.accept(0, 40)
    desk.wait_for(0, FIRST + SECOND)
    until(lambda: bridge.all[0].standstills == [], "no standstill")


def test_a_kafka_that_was_put_back_and_filled_again_between_two_polls_stops_the_copy(desk, monkeypatch):
    desk.kafka.add(desk.topic, 0, *FIRST)
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    poll, stopped, goes_on = MemoryKafkaReader.poll, threading.Event(), threading.Event()

    def stopped_poll(reader, wait_s):
        stopped.set()
        goes_on.wait(10)
        return poll(reader, wait_s)

    monkeypatch.setattr(MemoryKafkaReader, "poll", stopped_poll)
    assert stopped.wait(10)
    put_back(desk, 40, *SECOND)
    desk.kafka.interruptions += 1
    goes_on.set()
    desk.wait_standstill(bridge, "partition 0 offset 49: it has not the record that was copied from there")
    assert desk.bodies(0) == FIRST


def test_after_another_cluster_has_answered_at_the_address_the_own_one_is_copied_on_under_its_own_id(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.kafka.cluster_id = "another"
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    desk.kafka.cluster_id = "memory"
    desk.kafka.interruptions += 1
    until(
        lambda: any("belongs to another cluster" in each.sentence for each in bridge.all[0].standstills),
        "the standstill",
    )
    desk.kafka.cluster_id = "another"
    desk.kafka.interruptions += 1
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)
    until(lambda: bridge.all[0].standstills == [], "no standstill")


def test_the_last_copied_record_is_found_again_by_its_content_and_one_that_kafka_deleted_is_not_asked_for(desk):
    key, headers = b"\xff\0", [("penstock-id", b"mine"), ("h", None), ("penstock-tag", b"t")]
    desk.kafka.partitions[desk.topic][0].append(StoredKafkaRecord(key, None, headers, -1))
    desk.kafka.partitions[desk.topic][1].append(StoredKafkaRecord(None, b"", [], 0))
    for round_ in range(3):
        bridge = desk.bridge()
        until(lambda: desk.has_topic() and desk.state(0).next == 1, "the one copy")
        desk.wait_for(1, [b"", *[b"more"] * round_])
        assert bridge.all[0].standstills == []
        bridge.close(5)
        desk.kafka.starts[Partition(desk.topic, 0)] = round_ // 2
        desk.kafka.add(desk.topic, 1, b"more")


def test_the_copy_stops_at_a_record_that_is_too_large_until_it_is_left_out(desk):
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.kafka.add(desk.topic, 0, b"large", headers=[("h", b"x" * 40_000)])
    desk.kafka.add(desk.topic, 0, *SECOND)
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    desk.wait_standstill(bridge, "partition 0 offset 50: its headers and its key need 40,001 bytes")
    desk.accept(0, 51)
    desk.wait_for(0, FIRST + SECOND)


def test_queues_follow_the_number_of_partitions(desk, monkeypatch):
    monkeypatch.setattr("kafka_bridge.copy_in.session.LOOK_ALL_S", 0.05)
    desk.kafka.add(desk.topic, 0, *FIRST)
    desk.bridge()
    desk.wait_for(0, FIRST)
    desk.kafka.partitions[desk.topic].append([])
    desk.kafka.add(desk.topic, 2, *SECOND)
    desk.wait_for(2, SECOND)
    assert desk.store.get("topic", desk.topic).value["queues"] == 3
    desk.kafka.add(desk.topic, 0, *SECOND)
    desk.wait_for(0, FIRST + SECOND)


def test_a_copy_begins_where_the_definition_says(engine):
    desk = CopyDesk(engine, "later", {"home": "kafka:main", "copy_from": "30"})
    desk.kafka.add("later", 0, *FIRST)
    desk.kafka.add("later", 1, b"beyond the list")
    desk.bridge()
    desk.wait_for(0, FIRST[30:])
    desk.wait_for(1, [b"beyond the list"])
    desk.close()


def test_an_entry_copies_into_a_topic_of_the_engine_but_not_what_came_from_it(engine):
    desk = CopyDesk(engine, "mirrored", {})
    desk.store.put("copy_in", "mirrored", {"cluster": "main"}, 0)
    desk.kafka.add("mirrored", 0, b"before")
    bridge = desk.bridge()
    desk.wait_for(0, [b"before"])
    mark = desk.own_mark(b"own")
    desk.kafka.add("mirrored", 0, b"own", headers=[mark])
    desk.kafka.add("mirrored", 0, b"changed", headers=[mark])
    desk.wait_for(0, [b"before", b"changed"])
    assert bridge.all[0].skipped == 1
    desk.store.delete("copy_in", "mirrored", desk.store.get("copy_in", "mirrored").version)
    until(lambda: bridge.all == [], "the end of the copy")
    desk.close()


def test_a_topic_of_a_family_is_not_copied_into_since_its_queues_cannot_follow(engine):
    desk = CopyDesk(engine, "some.topic", {})
    desk.store.delete("topic", "some.topic", desk.store.get("topic", "some.topic").version)
    desk.store.put("family", "some.*", {"queues": 2}, 0)
    desk.store.put("copy_in", "some.topic", {"cluster": "main"}, 0)
    desk.wait_standstill(desk.bridge(), 'topic "some.topic": it has no entry of its own')
    desk.close()


def test_a_killed_engine_stops_the_copy_and_nothing_is_lost_or_doubled(tmp_path):
    engine = EngineProcess(tmp_path / "engine")
    desk = CopyDesk(engine, "killed", {"home": "kafka:main", "durability": "fsync"})
    desk.store.put(
        "topic",
        "killed",
        {"queues": 2, "durability": "replicated", "id_window_ms": 0, "home": "kafka:main"},
        desk.store.get("topic", "killed").version,
    )
    desk.kafka.add("killed", 0, *FIRST)
    bridge = desk.bridge()
    desk.wait_for(0, FIRST)
    engine.end(signal.SIGKILL)
    desk.kafka.add("killed", 0, *SECOND)
    desk.wait_standstill(bridge, "broker group main: ")
    engine.start()
    desk.wait_for(0, FIRST + SECOND)
    until(lambda: bridge.all[0].standstills == [], "no standstill")
    desk.close()
    engine.end(signal.SIGKILL)


def test_queues_that_move_to_an_added_broker_group_go_on_there_where_the_other_one_has_ended(tmp_path):
    engines = [EngineProcess(tmp_path / name / "engine") for name in made_folders(tmp_path, "a", "b")]
    desk = CopyDesk(engines[0], "moves", {"home": "kafka:main"}, partitions=6)
    desk.groups = {"a": (engines[0].address,)}
    for queue in range(6):
        desk.kafka.add("moves", queue, *FIRST)
    desk.bridge()
    for queue in range(6):
        desk.wait_for(queue, FIRST)
    desk.groups = {"a": (engines[0].address,), "b": (engines[1].address,)}
    placement = Placement(["a", "b"])
    homes = [placement.home(topic_hash(b"moves"), queue) for queue in range(6)]
    assert set(homes) == {0, 1}, "the test needs queues of both"
    for queue in range(6):
        desk.kafka.add("moves", queue, *SECOND)
    for queue, home in enumerate(homes):
        desk.engine = engines[home]
        desk.wait_for(queue, SECOND if home else FIRST + SECOND)
    desk.close()
    for each in engines:
        each.end(signal.SIGKILL)


def made_folders(place, *names):
    for each in names:
        (place / each).mkdir()
    return names
